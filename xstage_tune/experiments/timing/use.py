"""The attention's profile, behind the protocol of all."""

from __future__ import annotations

from xstage_tune.experiments.profiling.use import ProfileUse
from xstage_tune.experiments.timing.prediction import predict
from xstage_tune.experiments.timing.procedure import launches
from xstage_tune.experiments.timing.request import ProfileRequest
from xstage_tune.experiments.timing.result import conclude
from xstage_tune.families.attention_a2a.check import require_right
from xstage_tune.families.attention_a2a.timing import ATTENTIONS

USE = ProfileUse(ProfileRequest, ATTENTIONS, predict, launches, require_right, conclude)
