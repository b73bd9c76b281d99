"""``calibrate``: measure a path's M_X = (T0, R, Q) and write a platform profile."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from xstage_tune.base.errors import FindingError, UsageError
from xstage_tune.base.fabric import StoreFlavour
from xstage_tune.base.limits import SEED, BudgetName
from xstage_tune.commands._devices import PathChoice, named_path
from xstage_tune.commands._next_steps import after_calibration
from xstage_tune.commands._options import (
    OWN_PLATFORM,
    FormatOption,
    OutputFormat,
    StoreOption,
    number,
    platform_option,
)
from xstage_tune.commands._runs import notify, run_session, warn
from xstage_tune.commands._targets import ForceOption, check_target

if TYPE_CHECKING:
    from xstage_tune.calibration.request import CalibrationRequest
    from xstage_tune.calibration.result import CalibrationResult
    from xstage_tune.calibration.session import StoredCalibration
    from xstage_tune.devices.spec import DeviceSpec
    from xstage_tune.launches.device import Device
    from xstage_tune.platforms.schema import PlatformProfile

FlavoursChoice = Literal[StoreFlavour, "all"]


def calibrate(
    device: Annotated[
        str,
        typer.Option(
            help="auto (a GPU, else the shipped recording), cuda[:N], simulator, or replay[:NAME|FILE]."
        ),
    ] = "auto",
    path: Annotated[
        PathChoice, typer.Option(help="Whose memory is stored to; auto: peer where there is one, else host.")
    ] = "auto",
    store_flavour: Annotated[
        FlavoursChoice | None,
        typer.Option(help="Register stores of 16 bytes, bulk copies, or both.", show_default="all"),
    ] = None,
    budget: Annotated[
        BudgetName | None, typer.Option(help="How much to measure.", show_default="full")
    ] = None,
    platform: Annotated[
        str | None, platform_option("Calibrated platform that is simulated.", OWN_PLATFORM)
    ] = None,
    seed: Annotated[int | None, number(SEED, "Order of points and resampling.", "0")] = None,
    out: Annotated[
        Path | None,
        typer.Option(help="Profile to write (.toml).", show_default="your own platforms, under its name"),
    ] = None,
    plot: Annotated[Path | None, typer.Option(help="Figure to write (.svg or .html).")] = None,
    record: Annotated[Path | None, typer.Option(help="Keep the run for replay (.xsrec).")] = None,
    store: StoreOption = None,
    output: FormatOption = OutputFormat.TABLE,
    force: ForceOption = False,
) -> None:
    """Measure how remote stores drain: T0, R and Q of one path, validated on points not fitted to."""
    from xstage_tune.calibration.session import run_calibration
    from xstage_tune.devices.spec import CALIBRATE
    from xstage_tune.store.facade import Store

    _check_targets(out, plot, record, force)
    asked = CALIBRATE.parse(device)
    simulated = _simulated(asked, platform, path)
    with closing(_open(asked, simulated)) as opened:
        request = _request(opened, simulated, path, store_flavour, budget, seed)
        with Store.open(store) as kept:
            calibration = run_session(run_calibration, "calibrating", opened, request, kept, record, force)
    result = calibration.result
    profile = None if result.refused else _write_profile(opened, calibration, out, force)
    if plot is not None:
        _write_plot(plot, result, force)
    _show(calibration, profile, output)
    for finding in result.findings:
        if finding.severity == "warn":
            warn(f"{finding.message} ({finding.code})", finding.hint)
    refusals = [finding for finding in result.findings if finding.severity == "refuse"]
    if refusals:
        first, *others = (f"no profile written: {finding.message} ({finding.code})" for finding in refusals)
        raise FindingError(first, refusals[0].hint, others)
    if output is OutputFormat.TABLE and profile is not None:
        after_calibration(calibration, profile)


def _check_targets(out: Path | None, plot: Path | None, record: Path | None, force: bool) -> None:
    """Refuse a target before anything is measured."""
    targets = (
        ("--out", out, (".toml",)),
        ("--plot", plot, (".svg", ".html")),
        ("--record", record, (".xsrec",)),
    )
    for option, target, suffixes in targets:
        if target is not None:
            check_target(target, *suffixes, force=force, option=option)


def _simulated(asked: DeviceSpec, platform: str | None, path: PathChoice) -> PlatformProfile | None:
    """What to simulate; None elsewhere."""
    from xstage_tune.devices.platform_choice import choose_platform

    if asked.kind == "simulator":
        return choose_platform(platform, notify, path=named_path(path))
    if platform is not None:
        raise UsageError(
            "--platform says what to simulate, and nothing is simulated", "add --device simulator"
        )
    return None


def _open(asked: DeviceSpec, simulated: PlatformProfile | None) -> Device:
    """Where to calibrate; without a GPU ``auto`` replays the shipped recording, and says so."""
    from xstage_tune.devices import opener
    from xstage_tune.devices.spec import CALIBRATE
    from xstage_tune.launches.recording import DEFAULT_RECORDING

    if simulated is not None:
        return opener.open_simulator(simulated)
    if asked.kind == "replay":
        return opener.open_replay(CALIBRATE, asked.which)
    otherwise = f"replaying the recording '{DEFAULT_RECORDING}'"
    return opener.open_any_cuda(asked, CALIBRATE, notify, otherwise) or opener.open_replay(CALIBRATE)


def _request(
    device: Device,
    simulated: PlatformProfile | None,
    path: PathChoice,
    flavour: FlavoursChoice | None,
    budget: BudgetName | None,
    seed: int | None,
) -> CalibrationRequest:
    """What to measure: as asked; else, on a recording, as recorded; else everything that the device has."""
    from xstage_tune.base.fabric import STORE_FLAVOURS
    from xstage_tune.calibration.request import CalibrationRequest
    from xstage_tune.launches.replay import ReplayedDevice

    paths, flavours = device.describe().paths, STORE_FLAVOURS
    if simulated is not None:
        known = {point.flavour for point in simulated.issue}
        flavours = tuple(one for one in STORE_FLAVOURS if one in known)
    if isinstance(device, ReplayedDevice):
        chosen = CalibrationRequest.read(device.request, device.identity)
    else:
        chosen = CalibrationRequest(path="peer" if "peer" in paths else "host", flavours=flavours)
    given: dict[str, Any] = {
        "path": named_path(path),
        "flavours": STORE_FLAVOURS if flavour == "all" else flavour and (flavour,),
        "budget": budget,
        "seed": seed,
    }
    request = chosen.changed(**{key: value for key, value in given.items() if value is not None})
    if isinstance(device, ReplayedDevice) and request != chosen:
        shown = chosen.keys() | {"flavours": "+".join(chosen.flavours)}
        differing = [key for key in given if getattr(request, key) != getattr(chosen, key)]
        recorded = ", ".join(f"{key} {shown[key]}" for key in differing)
        raise UsageError(
            f"the recording was made with {recorded}: only what was measured can be replayed",
            "leave these options out, or measure anew with --device cuda",
        )
    return request


def _write_profile(
    device: Device, calibration: StoredCalibration, out: Path | None, force: bool
) -> Path | None:
    """Write the profile to ``out``, or to the user's platforms, beside an older one.

    Of a recording it goes there under a name of its own, so that it never hides what was measured. What was
    simulated does not go there: only what was measured is taken for the user's own GPU.
    """
    from xstage_tune.launches.replay import ReplayedDevice
    from xstage_tune.platforms.loader import save_platform, user_platforms_dir

    profile = calibration.result.platform
    if out is not None:
        save_platform(profile, out, force=force)
        return out
    if device.describe().simulated:
        return None
    if isinstance(device, ReplayedDevice):
        provenance = profile.provenance.model_copy(update={"replayed_from": device.recording})
        profile = profile.model_copy(update={"name": f"replayed-{profile.name}", "provenance": provenance})
    out = user_platforms_dir() / f"{profile.name}.toml"
    if out.exists() and not force:
        if _holds(out, profile):
            return out
        older, out = out, out.with_name(f"{profile.name}-{calibration.run_id}.toml")
        notify(f"{older} is kept (--force replaces it); the new profile goes beside it")
    save_platform(profile, out, force=force)
    return out


def _holds(file: Path, profile: PlatformProfile) -> bool:
    """Whether a file has this profile already, by another run of the same recording."""
    from xstage_tune.platforms.loader import load_platform

    try:
        older = load_platform(str(file))
    except UsageError:
        return False
    return older == profile.model_copy(update={"provenance": older.provenance})


def _write_plot(file: Path, result: CalibrationResult, force: bool) -> None:
    from xstage_tune.base.files import write_text
    from xstage_tune.report.calibration_figure import calibration_figure
    from xstage_tune.report.calibration_page import render_html
    from xstage_tune.report.svg import render_svg

    text = render_svg(calibration_figure(result)) if file.suffix == ".svg" else render_html(result)
    write_text(file, text, force=force)


def _show(calibration: StoredCalibration, profile: Path | None, output: OutputFormat) -> None:
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.report.calibration_figure import calibration_figure
    from xstage_tune.report.calibration_tables import platform_report
    from xstage_tune.report.tables import result_console
    from xstage_tune.report.terminal_plot import TerminalPlot

    result = calibration.result
    if output is OutputFormat.JSON:
        emit_json(
            {
                "run_id": calibration.run_id,
                "platform": result.platform,
                "findings": result.findings,
                "profile": profile,
            }
        )
        return
    console = result_console()
    console.print(TerminalPlot(calibration_figure(result)))
    console.print(platform_report(result.platform))
    console.print(f"run {calibration.run_id}" + (f", profile {profile}" if profile else ""), markup=False)
