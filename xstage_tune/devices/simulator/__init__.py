"""Event simulation of fused kernels whose tiles store to a remote owner.

No time stepping: between two events every rate is constant, so all quantities are integrated exactly.

**The path** (``fluid``). All producers share one queue that drains at R and holds Q(K). A burst of B
bytes is injected at its backpressure-free rate ``B / T0(B)`` while the queue has room. Once it is full
and the active bursts ask for more than R, the arbiter admits R in total, by water filling. Branches with
an active burst share R by their shares; within a branch, so do the ports (the platform's arbitration
groups) with one, by weight; within a port, its bursts equally. What a branch or a burst cannot use goes
to the others.

*Attribution of occupancy.* The queue is one first-in first-out store behind the arbiter: the arbiter
decides whose bytes enter, the queue does not know whose bytes it holds, and capacity belongs to no
branch. So a burst whose last byte enters at t has drained at t + q(t)/R, and K aligned identical
producers obey equations 1-7 for any branch shares ("issue" being that of the last producer done).

*Where hardware differs.* Recorded on an H200's host path, mean periods and issue times agree with this; the
spread of issue times is wider. There an SM whose port is asked for less than its share hardly waits while
others do, as if each producer had room of its own (about Q(K)/K), and equal bursts of SMs of one port end up
to tens of us apart. Simulated stalls of drain-limited waves are shorter than measured ones; that the SM
which waits longest ends a launch is the likely reason, not a proven one.

*State.* Bursts of one branch and one size, behind ports of equal weight with equally many busy members,
have equal rates. They form a flow class: a list in the order of their ends, and the bytes that one member
has injected since the class was last idle, its work. A burst ends when this work reaches its value at the
burst's begin plus B. An event therefore costs the number of live classes, not of producers. When a member
of a port begins or ends, the other members' bursts move to another class.

*Events.* A burst ends; the queue becomes full. (That it becomes empty changes no rate.)

*Invariants.* 0 <= q <= Q; accepted bytes = drained bytes + q; the rates of the bursts sum to R exactly
while the queue limits them; no burst exceeds its own rate.

**The pipeline** (``pipeline``, ``pipeline_kernel``). An SM runs one persistent CTA: a mainloop role
that works through the SM's tiles in order, and an issue role that stores each finished tile, joined by S
staging slots. A tile (a) waits until the row counter that it reads is complete, (b) takes a slot at a
given offset into its mainloop, (c) ends its mainloop, (d) is stored by the issue role: a staging part of
fixed length, then its remote bytes through the path, (e) frees its slot. The slot offset says what the
slots are: 0 for accumulators in tensor memory (eq. 15: two slots let one mainloop cover a burst), the
whole mainloop for an output buffer filled at the end (S such buffers act as S + 1 of the former),
one QK^T tile for FlashAttention (eqs. 17 and 19). Coupled to completion, a slot is freed only when the
tile's own bytes have drained, plus a latency.

*Events.* A role's timer (mainloop reaches its slot offset or its end, staging ends, completion), and the
path's two. Each role has at most one timer, kept in a winner tree.

*Progress.* The issue role never waits for a mainloop role, and R > 0, so every slot is freed in
the end. Only counters can deadlock; the order modules argue why theirs do not, and a deadlock
in a given order is reported with the tile that waits.

``bursts`` runs the calibration microbenchmarks on the path alone; ``megamoe`` and ``attention`` turn a
workload's tile order into streams for the pipeline; ``compute`` predicts tile times; ``traces`` turns
a run into spans and time series. numba is imported here and nowhere else.
"""
