"""Closed forms of a burst and of a schedule, each number with its basis and origin."""
