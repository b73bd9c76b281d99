"""The launches of one search: each on inputs of its own, and what can be said when the device is gone."""

from __future__ import annotations

from xstage_tune.base.errors import DeviceLost
from xstage_tune.families.config import KernelConfig
from xstage_tune.families.kernel_launch import KernelLaunch
from xstage_tune.launches.device import Device, LooksAhead
from xstage_tune.search.answer import EQUAL
from xstage_tune.search.candidates import Candidates
from xstage_tune.search.evaluation import Evaluation, Failure, evaluate
from xstage_tune.search.request import SearchRequest
from xstage_tune.search.space import Space

#: Runs of a known config that must fail before the device counts as gone.
_PROBES = 2


class Runner:
    """Runs configs on a device for a search.

    Attributes:
        succeeded: whether any has run in this process.
        in_turn: whether the device times a config in turn with another.
        busy_ns: what the GPU ran for so far.
    """

    def __init__(
        self, request: SearchRequest, space: Space, device: Device, candidates: Candidates, study_id: str
    ) -> None:
        self._request, self._configs, self._device = request, space.configs, device
        self._candidates, self._study_id = candidates, study_id
        self._launched = 0
        self.succeeded = False
        self.in_turn = False
        self.busy_ns = 0.0

    @property
    def device_identity(self) -> str:
        return self._device.identity

    def look_ahead(self, indices: list[int]) -> None:
        """Let the device get ready for configs that come next: compile them, say."""
        if isinstance(self._device, LooksAhead):
            request = self._request
            self._device.expect(
                [KernelLaunch(request.workload, self._configs[i], request.platform.path) for i in indices]
            )

    def run(
        self, index: int, repeats: int, against: int | None = None, *, last: bool = False
    ) -> Evaluation | Failure:
        """Run a config of the space.

        Args:
            repeats: of a device that does not time in turn.
            against: what it is timed in turn with, on a device that does.
            last: for the last comparison.

        Raises:
            DeviceLost: says what is kept, and how to go on.
        """
        other = None if against is None else self._configs[against]
        least_ns = self._candidates.least_latency_ns(index)
        return self.launch(self._configs[index], repeats, other, least_ns=least_ns, last=last)

    def launch(
        self,
        config: KernelConfig,
        repeats: int,
        against: KernelConfig | None,
        *,
        least_ns: float = 0.0,
        last: bool = False,
    ) -> Evaluation | Failure:
        """:meth:`run` of any config; ``least_ns`` is the lower bound of its latency."""
        request = self._request
        self._launched += 1
        launch = KernelLaunch(
            request.workload,
            config,
            request.platform.path,
            repeats,
            against=against,
            tolerance=None if last else EQUAL,
            inputs=(request.seed << 20) + self._launched,
            exposed=last,
            spans=request.objective == "stall",
        )
        try:
            found = evaluate(self._device, launch, objective=request.objective, least_ns=least_ns)
        except DeviceLost as lost:
            raise DeviceLost(
                f"{lost.message}{self.kept}", self.resumed("once it is in order again: ") or lost.hint
            ) from None
        if isinstance(found, Evaluation):
            self.succeeded = True
            self.busy_ns += found.run.busy_ns
            self.in_turn |= found.run.ratio is not None
        return found

    def device_gone(self, index: int) -> Failure | None:
        """How another config that ran before fails now, again and again; None where it runs, or none did."""
        known = self._candidates.fastest(but=index)
        if known is None:
            return None
        failure = None
        for _ in range(_PROBES):
            run = self.run(known, 1)
            failure = run if isinstance(run, Failure) and run.raised else None
            if failure is None:
                return None
        return failure

    @property
    def kept(self) -> str:
        """What is kept of a search that ends here, to be appended to the reason; empty for nothing."""
        return f"; {self._candidates.tried} trials are kept" if self._study_id else ""

    def resumed(self, when: str, option: str = "") -> str:
        """What takes the search up again, as a hint; empty where nothing is kept."""
        return f"{when}xstage-tune search --resume {self._study_id}{option}" if self._study_id else ""
