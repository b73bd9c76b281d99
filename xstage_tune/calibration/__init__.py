"""Calibration: plan of sweeps, fit of M_X = (T0, R, Q), validation on held-out points."""
