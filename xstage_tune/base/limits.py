"""What an option may be: a request's field and the option that it comes from have the same names and limits.

Nothing heavy is imported: options are declared before it is known which command runs.
"""

from __future__ import annotations

from typing import Literal

from annotated_types import Interval

#: How much a calibration measures.
BudgetName = Literal["quick", "full"]
#: What a search makes small: the time of a launch, or the time that its Tensor Core roles wait.
Objective = Literal["latency", "stall"]
#: Who proposes configs to a search beside the model's ranking; ``exhaustive`` evaluates every one that fits.
SamplerName = Literal["auto", "none", "tpe", "gp", "random", "exhaustive"]

SEED = Interval(ge=0, le=2**32 - 1)
#: Launches of each case; more would only repeat what is known.
REPEATS = Interval(ge=1, le=1000)
#: One spin in place of work, in ns: see ``families.fused_skeleton.LONGEST_SPIN_NS``.
SPIN_NS = Interval(ge=0, le=200e6)
#: S of a config. Hundreds of tiles of any size fill the shared memory of any GPU.
STAGING_DEPTH = Interval(ge=1, le=256)
#: Configs to evaluate.
TRIALS = Interval(ge=1, le=1_000_000)
#: A month.
TIMEOUT_S = Interval(ge=0, le=31 * 86_400)
#: A fraction of the bound.
TOLERANCE = Interval(ge=0, le=100)
#: Spans in one trace, and rows of a list.
EVENTS = Interval(ge=1, le=1_000_000_000)
ROWS = Interval(ge=1, le=1_000_000_000)
#: Number of a launch in its run.
LAUNCH = Interval(ge=0, le=2**31 - 1)
