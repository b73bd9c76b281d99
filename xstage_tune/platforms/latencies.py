"""Latencies of one H200 and its NVLink, for platforms whose profile states none."""

from __future__ import annotations

#: From a tile's last byte leaving its SM to its counter's being raised, and from there to another SM's seeing
#: it, on an idle H200: 359 and 605 ns (st.v4), 354 and 588 (tma) in the recorded run of
#: ``benchmarks/neighbour_waits.py``, 374 and 604 in an earlier one. A signal alone takes 832 ns on a B200
#: (ParallelKittens, arXiv 2511.13940).
RAISE_NS = 370.0
SIGNAL_NS = 600.0
#: From the last byte's leaving to its being visible: one way over NVLink (MSCCL++).
COMPLETION_LATENCY_NS = 800.0
