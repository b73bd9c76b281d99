"""Timing: a fused attention beside the serial ones and beside what the calibrated platform predicts."""
