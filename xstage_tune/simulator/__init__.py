"""Event simulation of fused kernels whose tiles store to a remote owner.

No time stepping: between two events every rate is constant, so all quantities are integrated exactly.

**The path** (``fluid``, ``fluid_rates``). Q(K) bytes can wait on the way to the owner: in a room that all
producers share, which drains at R, and in front of it in each producer's own. Stores enter a producer's
room as fast as they are issued (T0) and pass on at once while the shared room has any. When it is full the
arbiter admits R in total, by water filling. Branches with a waiting producer share R by their shares;
within a branch, so do the ports (the platform's arbitration groups) with one, by weight; within a port, its
producers equally. What a branch or a producer cannot use goes to the others. A burst is accepted when T0 is
over and its last byte has room.

*Local stores wait too.* A producer's room is first in, first out, whatever the owner: a tile that stores a
quarter of its bytes to a remote owner fills the room with local bytes that wait behind remote ones. So
mixed tiles stall with far less than Q outstanding (on an H200, at 1.5 of 3.9 MB). And a port serves its
producers in turn, byte for byte: while the shared room is full, local bytes at the head of one leave it no
faster than remote ones at the head of another. They take no part of R, so a port without remote bytes at a
head lets its local ones pass. Beside saturating producers of other ports an H200's SM does not wait for the
acceptance of its local bytes, here neither (``benchmarks/neighbour_waits.py``).

*Accesses wait too*, even those of an SM that stores nothing: behind all remote bytes that have left their
SMs, in the shared room and in the own ones. What has not left is what register stores can have outstanding
beyond bulk copies (``platforms.rooms``). So a counter is raised 31 us (here 35) after the stores before it
beside saturating producers of other ports, 44 (48) beside those of its own, 55 (39 to 47) behind a full room
of its own, 15 (17) behind a backlog of its own.

*Loads wait too.* What a mainloop loads leaves the SM behind the stores in its own room, and then waits
behind all that is outstanding, as in one queue. So a backlog that lasts longer than the operands loaded
ahead stops the mainloop (``load_cover_ns``); a skeleton's spin goes on. On an H200 an attention's Q-loop that
follows a burst of 3.8 MB to the host takes 57 to 62 us longer, of 70 us that the burst drains, here 66; since
all SMs wait for the last one, their bursts stay aligned from round to round.

*How Q is divided.* ``platforms.rooms`` reads the shared part off how Q grows with K. A platform that was
calibrated at one K tells nothing of it: there all of Q is shared.

*Attribution of occupancy.* The shared room is one first-in first-out store behind the arbiter: the arbiter
decides whose bytes enter, the room does not know whose bytes it holds. So a burst whose last byte enters it
at t has drained at t + q(t)/R, and K aligned identical producers obey equations 1-7 for any branch shares
("issue" being that of the last producer done) and any division of Q.

*Where hardware differs.* Recorded on an H200's host path, mean periods and issue times agree with this;
the spread of issue times is wider. Of mixed tiles in turn all wait about alike, here the local ones longer
and the remote ones shorter, though the sum agrees: local bytes seem to hold room until they are written. To
let each hold its own room for the wait of an access gives the local waits of waves, but lengthens launches by
up to 14%; to mix a tile's local and remote bytes evenly errs as far to the other side, but with register
stores in turn by little.
The slowest SMs end 2 to 5% later where tiles are mixed, since of mixed tiles the branch that is due less of
R gets less still: 0.42 to 0.46 of it, where 0.476 is due. Of a lone burst near Q the slowest SM is accepted
after 24 to 60 us instead of 7, though the mean is alike. In the shared room the branches do not mix there: an
SM's accesses wait behind the remote bytes of its own branch only, so one whose branch is idle does not wait.
With register stores an SM that waits also holds up its other roles' accesses of shared memory, and so
prolongs mainloops, by up to 0.8 us on average; ``skeletons`` reduces that to a limit on the slots that are
of use.

*State.* Producers of one branch with bursts of one kind (bytes, pace, remote or local) at the head of their
rooms, behind ports of equal weight with equally many members that send remote ones, pass bytes on at equal
rates. They form a flow class: a list in the order in which they are at their goals, and the bytes that one
member has passed on since the class was last idle, its work. A producer's goal is that the burst at its head
is in the shared room, or enough of it for the last one in its room to be accepted. An event therefore costs
the number of live classes, not of producers. When a member of a port begins or ceases to send remote bytes,
the other members move to another class.

*Events.* A producer is at its goal; the shared room becomes full. (That it becomes empty changes no rate.)

*Invariants.* 0 <= q <= its size; bytes that entered = bytes drained + q; the rates of the producers sum to
R exactly while the shared room limits them; none exceeds its own rate.

**The pipeline** (``pipeline``, ``pipeline_kernel``). An SM runs one persistent CTA: a mainloop role
that works through the SM's tiles in order, and an issue role that stores each finished tile, joined by S
staging slots. A tile (a) waits until the row counter that it reads is complete, (b) takes a slot at a
given offset into its mainloop, (c) ends its mainloop, (d) is stored by the issue role: a staging part of
fixed length, then its remote bytes through the path, (e) frees its slot. The slot offset says what the
slots are: 0 for accumulators in tensor memory (eq. 15: two slots let one mainloop cover a burst), the
whole mainloop for an output buffer filled at the end (S such buffers act as S + 1 of the former),
one QK^T tile for FlashAttention (eqs. 17 and 19). Coupled to completion, a slot is freed only when the
tile's own bytes have drained, plus a latency.

*Counters.* A tile that raises a counter when stored does it by a signal role of its own: its copies to
the GPU's memory must have left its SM's own room, and then wait as any access does, so that the counter is
raised that wait and ``raise_ns`` later. Until then the role is taken: the next tile that raises one is not
stored, and tiles behind keep their slots. Others poll the counter: they see it half a wait and ``signal_ns``
after it is raised. On an H200 that is 18 us beside saturating producers of other ports, here 28 to 34, and 67
to 75 beside those of the own port, here 51 to 53 (idle: 1 and 1).

*Events.* A role's timer (mainloop reaches its slot offset or its end, staging ends, completion, a counter is
raised), and the path's two. Each role has at most one timer, kept in a winner tree.

*Progress.* Neither storing role ever waits for a mainloop role, and R > 0, so every slot is freed in
the end. Only counters can deadlock; the order modules argue why theirs do not, and a deadlock
in a given order is reported with the tile that waits.

``device`` is the simulator as a device: ``bursts`` runs the calibration microbenchmarks on the path alone,
``skeletons`` and ``fused_kernels`` run the pipeline; ``megamoe`` and ``attention`` turn a
workload's tile order into streams for the pipeline; ``compute`` predicts tile times; ``traces`` turns
a run into spans and time series. numba is imported here and nowhere else.
"""
