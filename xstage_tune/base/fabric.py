"""Paths of remote stores, and the instructions that store."""

from __future__ import annotations

from typing import Literal

#: Where the bytes go: another GPU over its link, pinned host memory over PCIe, or the GPU's own
#: memory (the control, which has no remote path to wait for).
StorePath = Literal["peer", "host", "local"]
#: How they are stored: 16-byte register stores of 256 threads, or bulk copies from shared memory.
StoreFlavour = Literal["st.v4", "tma"]

STORE_FLAVOURS: tuple[StoreFlavour, ...] = ("st.v4", "tma")
