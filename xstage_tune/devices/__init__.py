"""Devices: where work runs, behind one protocol."""
