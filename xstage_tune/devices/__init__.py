"""Opens what ``--device`` names: a GPU, a simulation of one, or a recorded run."""
