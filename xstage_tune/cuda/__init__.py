"""The CUDA device: compile, launch, verify."""
