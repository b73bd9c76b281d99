"""A MoE layer's profile, behind the protocol of all."""

from __future__ import annotations

from functools import partial

from xstage_tune.experiments.profiling.use import ProfileUse
from xstage_tune.experiments.schedules.prediction import predict
from xstage_tune.experiments.schedules.request import LayerRequest, launches
from xstage_tune.experiments.schedules.result import conclude
from xstage_tune.families.megamoe.timing import LAYERS
from xstage_tune.families.profiled import require_right

#: The kernel's check has refused what lies beyond its tolerance, and says so in words.
_NO_TOLERANCE_OF_ITS_OWN = float("inf")

USE = ProfileUse(
    LayerRequest,
    LAYERS,
    predict,
    launches,
    partial(require_right, tolerance=_NO_TOLERANCE_OF_ITS_OWN),
    conclude,
)
