"""Who is told how far a long piece of work is."""

from __future__ import annotations

from typing import Protocol


class Progress(Protocol):
    """Shows how far a run, or a search, is."""

    def planned(self, total: int) -> None:
        """Say how many launches or evaluations there may be; may be called again when that changes."""
        ...

    def advance(self, label: str) -> None:
        """Count one as done; ``label`` says which, or how things stand."""
        ...
