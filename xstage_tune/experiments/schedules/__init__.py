"""A fused MoE layer under all its schedules, beside the layer without fusion and beside its predictions."""
