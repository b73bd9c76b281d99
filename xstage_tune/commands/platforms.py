"""``platforms list|show|new|gpu|path``: the calibrated platforms that this installation knows."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from xstage_tune.base.errors import UsageError
from xstage_tune.commands._completion import platform_names
from xstage_tune.commands._help import GroupOfOwnFiles
from xstage_tune.commands._new import NameArgument, NewFileOption, as_argument, show_written, target_of
from xstage_tune.commands._options import FormatOption, OutputFormat
from xstage_tune.commands._runs import warn
from xstage_tune.commands._targets import ForceOption

if TYPE_CHECKING:
    from xstage_tune.platforms.schema import PlatformProfile
    from xstage_tune.report.tables import Columns, TableData

app = typer.Typer(
    cls=GroupOfOwnFiles,
    help="Platform profiles: measured issue time, drain rate and capacity.",
    no_args_is_help=True,
)


@app.command("list")
def list_command(output: FormatOption = OutputFormat.TABLE) -> None:
    """List the shipped platforms and your own; a broken file is named on stderr and left out."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.platforms.loader import list_platforms, load_platform
    from xstage_tune.report.tables import print_tables

    found: dict[str, tuple[PlatformProfile, Path]] = {}
    for name, path in list_platforms().items():
        try:
            found[name] = load_platform(name), path
        except UsageError as error:
            warn(error.message)
    if output is OutputFormat.JSON:
        emit_json({"platforms": [_summary(name, *entry) for name, entry in found.items()]})
    else:
        print_tables(_list_table(found))


@app.command()
def show(
    platform: Annotated[
        str, typer.Argument(metavar="NAME|FILE.toml", autocompletion=platform_names, help="Platform to show.")
    ],
    output: FormatOption = OutputFormat.TABLE,
) -> None:
    """Show one platform: its numbers with their intervals and sources."""
    from xstage_tune.base.json_output import emit_json
    from xstage_tune.platforms.loader import load_platform
    from xstage_tune.report.calibration_tables import platform_report, tile_times_table
    from xstage_tune.report.tables import print_tables, result_console

    profile = load_platform(platform)
    if output is OutputFormat.JSON:
        emit_json({"platform": profile.model_dump(mode="json", exclude_none=True)})
    else:
        tile_times = tile_times_table(profile)
        result_console().print(platform_report(profile))
        print_tables(*(tile_times,) if tile_times else ())


@app.command()
def new(name: NameArgument, output: NewFileOption = None, force: ForceOption = False) -> None:
    """Write a commented template of a platform, which loads as it is; a calibration writes a measured one."""
    from xstage_tune.base.files import write_text
    from xstage_tune.platforms.loader import list_platforms, user_platforms_dir
    from xstage_tune.platforms.template import platform_template

    text = platform_template(name)
    path = target_of(name, output, user_platforms_dir(), list_platforms(), force)
    write_text(path, text, force=force)
    show_written(path, f"xstage-tune platforms show {as_argument(name, output)}")


@app.command()
def gpu(
    platform: Annotated[
        str,
        typer.Argument(metavar="NAME|FILE.toml", help="Platform of the GPU.", autocompletion=platform_names),
    ],
    output: NewFileOption = None,
    force: ForceOption = False,
) -> None:
    """Write a commented template of the compute section of a platform's GPU, where none is shipped."""
    from xstage_tune.base.files import write_text
    from xstage_tune.platforms.gpu_template import gpu_file_name, gpu_template
    from xstage_tune.platforms.gpus import user_gpus_dir
    from xstage_tune.platforms.loader import load_platform

    profile = load_platform(platform)
    path = target_of(gpu_file_name(profile.gpu), output, user_gpus_dir(), {}, force)
    write_text(path, gpu_template(profile.gpu), force=force)
    show_written(path, f"xstage-tune platforms show {shlex.quote(platform)}")


@app.command("path")
def path_command() -> None:
    """Print the folder of your own platforms: what is in it is found by name."""
    from xstage_tune.platforms.loader import user_platforms_dir

    print(user_platforms_dir())


def _summary(name: str, profile: PlatformProfile, path: Path) -> dict[str, object]:
    return {
        "name": name,
        "description": profile.description,
        "path": profile.path,
        "gpu": profile.gpu.name,
        "drain_bytes_per_s": profile.drain.bytes_per_s,
        "flavours": _flavours(profile),
        "file": path,
    }


def _list_table(found: dict[str, tuple[PlatformProfile, Path]]) -> TableData:
    from xstage_tune.base.number_format import rate
    from xstage_tune.platforms.loader import user_platforms_dir
    from xstage_tune.report.tables import Column, table

    columns: Columns[tuple[str, PlatformProfile]] = (
        Column("name", lambda named: named[0]),
        Column("path", lambda named: named[1].path),
        Column("GPU", lambda named: named[1].gpu.name),
        Column("drain R", lambda named: named[1].drain.bytes_per_s, rate),
        Column("stores", lambda named: ", ".join(_flavours(named[1]))),
        Column("description", lambda named: named[1].description),
    )
    notes = (f"yours: {user_platforms_dir()} (xstage-tune calibrate, or platforms new NAME)",)
    rows = ((name, profile) for name, (profile, _) in found.items())
    return table("Platforms", columns, rows, notes=notes)


def _flavours(profile: PlatformProfile) -> list[str]:
    return sorted({point.flavour for point in profile.issue})
