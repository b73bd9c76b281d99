"""Spans of kernels that are the user's own: their buffers, and what other tools recorded, into the store.

For the process that launches a kernel which records some: :func:`header_dir`, :func:`new_buffer`,
:func:`read_buffer` and :func:`save_buffer`.
"""

from __future__ import annotations

from xstage_tune.spans.buffer import header_dir, new_buffer, read_buffer, save_buffer

__all__ = ["header_dir", "new_buffer", "read_buffer", "save_buffer"]
