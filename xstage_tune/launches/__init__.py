"""Launches of every kind, the devices that run them, and their recordings and replay."""
