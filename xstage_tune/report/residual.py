"""What attention's All-to-All leaves exposed against the sequence length, simulated and predicted."""

from __future__ import annotations

from dataclasses import dataclass
from operator import attrgetter

import numpy as np

from xstage_tune.families.binding import bind
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.workload import Workload
from xstage_tune.platforms.schema import PlatformProfile
from xstage_tune.report.drawing import Drawing
from xstage_tune.report.figure import Axis, Floats, Panel, Plate
from xstage_tune.report.simulated import SEED
from xstage_tune.simulator.fused_kernels import SimulatedKernels

_HALVINGS, _DOUBLINGS = 3, 6
_FEWEST_TOKENS, _MOST_TOKENS = 1024, 65_536
_LINE_POINTS = 48
_XSTAGE_COLOUR, _COUPLED_COLOUR = 0, 1
_TOKENS = Axis("tokens M", "count", "log")


@dataclass(frozen=True, slots=True)
class Residuals:
    """E_res of one config until all stores have arrived, against the sequence length; arrays over ``tokens``.

    Args:
        alone_ns: T_FA, the same launch with no remote stores.
        xstage_ns, coupled_ns: E_res of the X-Stage issuer and of one that waits for completion.
    """

    tokens: Floats
    alone_ns: Floats
    xstage_ns: Floats
    coupled_ns: Floats


def simulated_residuals(workload: Workload, platform: PlatformProfile, config: KernelConfig) -> Residuals:
    """Simulate ``config`` at the workload's length and at halves and doubles of it, with either issuer."""
    kernels = SimulatedKernels(platform)
    rows = []
    for tokens in _lengths(workload.token_count):
        launch = kernels.launch(workload.model_copy(update={workload.TOKENS_KEY: tokens}), config)
        alone_ns = launch.without_remote_stores().run(SEED).end_ns
        xstage_ns = launch.run(SEED).end_ns
        coupled_ns = launch.run(SEED, completion_coupled=True).end_ns
        rows.append((tokens, alone_ns, xstage_ns - alone_ns, coupled_ns - alone_ns))
    return Residuals(*np.array(rows, np.float64).T)


def predicted_residuals(
    workload: Workload, platform: PlatformProfile, config: KernelConfig, tokens: Floats
) -> Residuals:
    """The closed forms at ``tokens``; T_FA is the Q-loops of the busiest SM."""
    rows = []
    for count in np.unique(tokens.astype(np.int64)).tolist():
        at = workload.model_copy(update={workload.TOKENS_KEY: count})
        arrival = bind(at, platform, config).estimate(config).until_arrived
        assert arrival is not None, "residuals are drawn of families that predict them"
        alone_ns = arrival.mainloops_ns
        exposed_ns = (arrival.residual_ns.value, arrival.completion_coupled_residual_ns.value)
        rows.append((count, alone_ns, *exposed_ns))
    return Residuals(*np.array(rows, np.float64).T)


def residual_plate(workload: Workload, simulated: Residuals, predicted: Residuals) -> Plate:
    """E_res and E_res/T_FA against M: predictions as lines, simulations as points."""
    return Plate(
        title="What the All-to-All leaves exposed",
        subtitle=f"{workload.name} at other sequence lengths; its own is {workload.token_count:,} tokens",
        panels=(
            _panel("a", "Residual", Axis("E_res = T_fused - T_FA", "duration_ns", "symlog"), simulated,
                   predicted, relative=False),
            _panel("b", "Residual of attention time", Axis("E_res / T_FA", "fraction", "log"), simulated,
                   predicted, relative=True),
        ),
    )  # fmt: skip


def _panel(
    key: str, title: str, y: Axis, simulated: Residuals, predicted: Residuals, *, relative: bool
) -> Panel:
    drawing = Drawing(_TOKENS, y)
    for name, colour, of in (
        ("X-Stage", _XSTAGE_COLOUR, attrgetter("xstage_ns")),
        ("completion-coupled", _COUPLED_COLOUR, attrgetter("coupled_ns")),
    ):
        line, points = (
            (of(each) / each.alone_ns if relative else of(each)) for each in (predicted, simulated)
        )
        drawing.add_explained(f"{name}, predicted", "line", colour, predicted.tokens, line)
        drawing.add_explained(f"{name}, simulated", "points", colour, simulated.tokens, points)
    return drawing.panel(key, title)


def line_lengths(tokens: int) -> Floats:
    """Sequence lengths at which predictions are drawn, over the range of the simulated ones."""
    lengths = _lengths(tokens)
    return np.geomspace(lengths[0], lengths[-1], _LINE_POINTS)


def _lengths(tokens: int) -> list[int]:
    """``tokens``, halves of it from 1,024 on, and doubles up to 65,536, but one in any case."""
    halves = [tokens // 2**power for power in range(_HALVINGS, 0, -1)]
    doubles = [tokens * 2**power for power in range(1, _DOUBLINGS + 1)]
    return [
        *(half for half in halves if half >= _FEWEST_TOKENS),
        tokens,
        *(double for double in doubles if double <= max(_MOST_TOKENS, 2 * tokens)),
    ]
