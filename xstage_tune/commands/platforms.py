"""``platforms list|show``: the calibrated platforms that this installation knows."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.commands._options import FormatOption, OutputFormat
from xstage_tune.errors import UsageError

if TYPE_CHECKING:
    from xstage_tune.platforms.schema import PlatformProfile
    from xstage_tune.report.tables import TableData

app = typer.Typer(
    help="Platform profiles: measured issue time, drain rate and capacity.", no_args_is_help=True
)


@app.command("list")
def list_command(output: FormatOption = OutputFormat.TABLE) -> None:
    """List the shipped platforms and your own; a broken file is named on stderr and left out."""
    from xstage_tune.platforms.loader import list_platforms, load_platform
    from xstage_tune.report.emit import emit_json
    from xstage_tune.report.tables import render_table, result_console

    found: list[tuple[PlatformProfile, Path]] = []
    for name, path in list_platforms().items():
        try:
            found.append((load_platform(name), path))
        except UsageError as error:
            print(f"xstage-tune: warning: {error.message}", file=sys.stderr)
    if output is OutputFormat.JSON:
        emit_json({"platforms": [_summary(profile, path) for profile, path in found]})
    else:
        result_console().print(render_table(_list_table(found)))


@app.command()
def show(
    platform: Annotated[str, typer.Argument(metavar="NAME|FILE.toml", help="Platform to show.")],
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show one platform: every number with its interval and source."""
    from xstage_tune.platforms.loader import load_platform
    from xstage_tune.report.emit import emit_json
    from xstage_tune.report.tables import render_table, result_console

    profile = load_platform(platform)
    if output is OutputFormat.JSON:
        emit_json({"platform": profile.model_dump(mode="json", exclude_none=True)})
    else:
        result_console().print(render_table(_show_table(profile)))


def _summary(profile: PlatformProfile, path: Path) -> dict[str, object]:
    return {
        "name": profile.name,
        "description": profile.description,
        "path": profile.path,
        "gpu": profile.gpu.name,
        "drain_bytes_per_s": profile.drain.bytes_per_s,
        "flavours": _flavours(profile),
        "file": path,
    }


def _list_table(found: list[tuple[PlatformProfile, Path]]) -> TableData:
    from xstage_tune.report.format import rate
    from xstage_tune.report.tables import Column, TableData

    headings = ("name", "path", "GPU", "drain R", "stores", "description")
    rows = [
        (
            profile.name,
            profile.path,
            profile.gpu.name,
            rate(profile.drain.bytes_per_s),
            ", ".join(_flavours(profile)),
            profile.description,
        )
        for profile, _ in found
    ]
    return TableData("Platforms", tuple(map(Column, headings)), tuple(rows))


def _show_table(profile: PlatformProfile) -> TableData:
    from xstage_tune.report.format import byte_count, duration, rate
    from xstage_tune.report.tables import Column, TableData

    gpu, drain, compute = profile.gpu, profile.drain, profile.compute
    chip = f"{gpu.name}, {gpu.architecture}, {gpu.sm_count} SMs at {gpu.sm_clock_mhz:.0f} MHz"
    rows = [("GPU", chip, gpu.source), ("drain R", rate(drain.bytes_per_s, drain.ci95), drain.source)]
    for issue in profile.issue:
        burst = f"issue T0, {issue.flavour}, {issue.producers} x {byte_count(issue.burst_bytes)}"
        rows.append((burst, duration(issue.ns, issue.ci95), issue.source))
    for knee in profile.capacity:
        size = byte_count(knee.bytes, knee.ci95)
        label = f"capacity Q, {knee.flavour}, {knee.producers} producers"
        rows.append((label, size if knee.knee_reached else f"at least {size}", knee.source))
    for tensor in compute.tensor if compute else ():
        peak = (
            f"{tensor.peak_flop_per_s / 1e12:,.0f} TFLOP/s, of which tiles reach {tensor.tile_efficiency:.1%}"
        )
        rows.append((f"tensor peak, {tensor.dtype}", peak, tensor.source))
    for tile in compute.attention if compute else ():
        label = f"KV tile, {tile.dtype}, {tile.block_m} x {tile.block_n} x {tile.head_dim}"
        rows.append((label, duration(tile.kv_tile_ns), tile.source))
    title = f"{profile.name} ({profile.path}): {profile.description}"
    made = f"made {profile.provenance.created_at}, {profile.provenance.tool_version}"
    return TableData(title, tuple(map(Column, ("quantity", "value", "source"))), tuple(rows), (made,))


def _flavours(profile: PlatformProfile) -> list[str]:
    return sorted({point.flavour for point in profile.issue})
