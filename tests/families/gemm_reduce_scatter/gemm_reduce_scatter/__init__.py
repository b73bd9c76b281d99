"""A GEMM whose output tiles leave as its reduce-scatter."""
