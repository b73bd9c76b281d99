"""A stand-in for the NVML library."""

from __future__ import annotations

from typing import Any

import pynvml


class FakeNvml:
    """Answers by function name; a function without an answer is not supported. Counts open references."""

    def __init__(self, answers: dict[str, Any], present: bool = True) -> None:
        self.answers = answers
        self.present = present
        self.references = 0

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nvml"):
            return getattr(pynvml, name)
        return lambda *arguments: self._call(name, *arguments)

    def nvmlInit(self) -> None:  # noqa: N802
        if not self.present:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_LIBRARY_NOT_FOUND)
        self.references += 1

    def nvmlShutdown(self) -> None:  # noqa: N802
        self.references -= 1

    def _call(self, name: str, *arguments: Any) -> Any:
        if name not in self.answers:
            raise pynvml.NVMLError(pynvml.NVML_ERROR_NOT_SUPPORTED)
        answer = self.answers[name]
        return answer(*arguments) if callable(answer) else answer
