"""What a command's ``--config`` names: ``default``, ``study:ID`` or a file."""

from __future__ import annotations

DEFAULT_CONFIG = "default"
_STUDY = "study:"


def study_of(choice: str) -> str | None:
    """The study whose answer is named; None where it is another choice."""
    return choice.removeprefix(_STUDY) if choice.startswith(_STUDY) else None


def is_file_choice(choice: str) -> bool:
    """Whether a file is named."""
    return choice != DEFAULT_CONFIG and study_of(choice) is None
