"""Launches on a real GPU: compile, launch, time, verify. The only room that knows the driver."""
