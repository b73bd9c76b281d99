"""What ``--help`` says beside a command's own words: its line in the list of commands, and examples.

Examples are complete commands; the tests parse each of them.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import typer
from typer.core import TyperGroup

from xstage_tune.commands._bad_options import own_words

_WORKLOAD = "megamoe/deepseek-v4-flash"


@dataclass(frozen=True, slots=True)
class CommandHelp:
    """``line`` fits the list of commands at 80 columns whole; so does each of ``examples`` below it."""

    line: str
    examples: tuple[str, ...]


COMMANDS = {
    "audit": CommandHelp(
        "Will the bursts of a workload, or yours, stall here?",
        (
            "xstage-tune audit -w fa-a2a/paper -p paper-nvlink5",
            "xstage-tune audit -w fa-a2a/paper -p h200-peer --set tokens=1024 --strict",
            "xstage-tune audit -w fa-a2a/paper -p h200-peer --config mine.toml",
            "xstage-tune audit -p h200-peer --burst-bytes 32KiB --gap-us 4",
            "xstage-tune audit -p h200-peer --burst-bytes 32KiB --sweep gap-us=2,4,8",
        ),
    ),
    "calibrate": CommandHelp(
        "Measure T0, R and Q of this machine's remote stores.",
        (
            "xstage-tune calibrate",
            "xstage-tune calibrate --device cuda:1 --path peer --budget quick",
            "xstage-tune calibrate --device replay:h200-host --plot figure.svg",
        ),
    ),
    "doctor": CommandHelp(
        "Check what this machine can do.",
        ("xstage-tune doctor", "xstage-tune doctor --device cuda:0 --format json"),
    ),
    "emulate": CommandHelp(
        "Run a schedule's stores and waits before its kernel is written.",
        (
            "xstage-tune emulate -w megamoe/mixtral-8x7b --set tokens=512 --schedule all",
            f"xstage-tune emulate -w {_WORKLOAD} --sweep tokens=256,1024",
            "xstage-tune emulate --device replay:h200-host --format json",
            "xstage-tune emulate --from latest --burst stores --burst-bytes 32KiB",
        ),
    ),
    "profile": CommandHelp(
        "Time the fused attention beside serial ones, on this GPU.",
        (
            "xstage-tune profile -w fa-a2a/paper --sweep tokens=1024,2048,4096",
            "xstage-tune profile -w fa-a2a/wan2.1-14b-720p --config study:latest",
            "xstage-tune profile --device replay:h200-host",
        ),
    ),
    "build": CommandHelp(
        "Compile all kernels that a search may time; needs no GPU.",
        (
            "xstage-tune build -w fa-a2a/paper -p h200-host --set tokens=8192",
            "xstage-tune build -w fa-a2a/paper -p h200-host --processes 16",
        ),
    ),
    "search": CommandHelp(
        "Find the best tiles, schedule and staging of a fused kernel.",
        (
            f"xstage-tune search -w {_WORKLOAD} -p paper-nvlink5 --trials 60",
            "xstage-tune search -w fa-a2a/paper -p h200-peer --set tokens=16384",
            "xstage-tune search -w fa-a2a/paper --device cuda --record paper.xstune",
            "xstage-tune search --space my-kernel/space.toml",
            "xstage-tune search --resume latest --trials 200",
        ),
    ),
    "init-space": CommandHelp(
        "Write the space of a kernel of your own, to search.",
        (
            "xstage-tune init-space my-kernel",
            "xstage-tune init-space my-kernel --name own/my-gemm",
        ),
    ),
    "verify": CommandHelp(
        "Measure a deployed config and the default on this machine.",
        (
            "xstage-tune verify tuned/attention.json",
            "xstage-tune verify tuned/attention.json --format json",
        ),
    ),
    "export": CommandHelp(
        "Write a tuned config for a kernel, a server or another tuner.",
        (
            "xstage-tune export --study latest -o tuned/deepseek-v4-flash.json",
            "xstage-tune export --format header -o tuned.h",
        ),
    ),
    "import": CommandHelp(
        "Take spans of your own kernel, Nsight Systems or Chrome.",
        (
            "xstage-tune import my-kernel.spans",
            "xstage-tune import report.sqlite trace.json.gz",
        ),
    ),
    "report": CommandHelp(
        "Write a run or a study as one HTML page.",
        (
            "xstage-tune report --study latest -o study.html",
            "xstage-tune report --run latest -o run.html",
        ),
    ),
    "trace": CommandHelp(
        "Write the spans of a run or a study for Perfetto.",
        (
            "xstage-tune trace --study latest -o study.json.gz",
            "xstage-tune trace --run latest --launch 0 -o run.json.gz",
        ),
    ),
    "platforms": CommandHelp(
        "Which calibrated platforms are known?",
        ("xstage-tune platforms list", "xstage-tune platforms show h200-peer"),
    ),
    "platforms list": CommandHelp(
        "List the shipped platforms and your own.",
        ("xstage-tune platforms list", "xstage-tune platforms list --format json"),
    ),
    "platforms show": CommandHelp(
        "Show one platform's numbers with their sources.",
        ("xstage-tune platforms show h200-peer", "xstage-tune platforms show ./mine.toml"),
    ),
    "platforms new": CommandHelp(
        "Write a template of a platform.",
        ("xstage-tune platforms new my-node", "xstage-tune platforms new my-node -o my-node.toml"),
    ),
    "platforms gpu": CommandHelp(
        "Write a template of what a platform's GPU computes.",
        ("xstage-tune platforms gpu my-node", "xstage-tune platforms gpu my-node -o my-gpu.toml"),
    ),
    "platforms path": CommandHelp(
        "Print the folder of your own platforms.",
        ("xstage-tune platforms path", 'ls "$(xstage-tune platforms path)"'),
    ),
    "workloads": CommandHelp(
        "Which model layers are known, and how to add your own?",
        ("xstage-tune workloads list", "xstage-tune workloads new acme/my-layer"),
    ),
    "workloads list": CommandHelp(
        "List the shipped workloads and your own.",
        ("xstage-tune workloads list", "xstage-tune workloads list --format json"),
    ),
    "workloads show": CommandHelp(
        "Show one workload and what follows from it.",
        (
            f"xstage-tune workloads show {_WORKLOAD}",
            "xstage-tune workloads show fa-a2a/paper --set tokens=16384",
        ),
    ),
    "workloads new": CommandHelp(
        "Write a template of a workload of your own.",
        (
            "xstage-tune workloads new acme/my-layer",
            "xstage-tune workloads new acme/my-attention --kind attention -o mine.toml",
        ),
    ),
    "workloads path": CommandHelp(
        "Print the folder of your own workloads.",
        ("xstage-tune workloads path", 'ls "$(xstage-tune workloads path)"'),
    ),
    "store": CommandHelp(
        "Where are results kept, what is there, is it whole?",
        ("xstage-tune store info", "xstage-tune store check"),
    ),
    "store path": CommandHelp(
        "Print where the store is.",
        ("xstage-tune store path", "xstage-tune store path --store runs.db"),
    ),
    "store info": CommandHelp(
        "Count what the store holds.",
        ("xstage-tune store info", "xstage-tune store info --format json"),
    ),
    "store list": CommandHelp(
        "List runs and studies, newest first.",
        (
            "xstage-tune store list",
            "xstage-tune store list --kind study --state finished -w megamoe",
            "xstage-tune store list --format json",
        ),
    ),
    "store show": CommandHelp(
        "Show all that is known of one run or study.",
        (
            "xstage-tune store show latest",
            "xstage-tune store show stu-20261201-114738-3fa9c1",
            "xstage-tune store show cal-20261201-101502-0b77d2 --format json",
        ),
    ),
    "store rm": CommandHelp(
        "Remove runs and studies.",
        (
            "xstage-tune store rm stu-20261201-114738-3fa9c1",
            "xstage-tune store rm --yes stu-20261201-114738-3fa9c1",
        ),
    ),
    "store salvage": CommandHelp(
        "Copy what is whole of a damaged store.",
        (
            "xstage-tune store salvage whole.db",
            "xstage-tune store salvage whole.db --store damaged.db",
        ),
    ),
    "store check": CommandHelp(
        "Check the database and all spans in it.",
        ("xstage-tune store check", "xstage-tune store check --store runs.db"),
    ),
}


class GroupOfOwnFiles(TyperGroup):
    """Commands that find files of a user's own by name: its help says where these are.

    What is wrong with their options is said in the tool's own words, without passwords.
    """

    def make_context(self, *args: Any, **kwargs: Any) -> Any:
        with own_words():
            return super().make_context(*args, **kwargs)

    def invoke(self, ctx: Any) -> Any:
        with own_words():
            return super().invoke(ctx)

    def format_epilog(self, ctx: Any, formatter: Any) -> None:
        """Found out only when help is asked for: that looks at folders."""
        from xstage_tune.base.user_folders import data_folder

        super().format_epilog(ctx, formatter)
        folder = data_folder()
        formatter.write_paragraph()
        with formatter.indentation():
            formatter.write_text("Your own files, found by name:")
            for kind in ("workloads", "platforms"):
                formatter.write(f"    {folder / kind}\n")


def add_help(app: typer.Typer, place: str = "") -> None:
    """Give every command and group of ``app`` its line and examples."""
    for command in app.registered_commands:
        name = command.name or (command.callback.__name__ if command.callback else "")
        command.short_help, command.epilog = _texts(f"{place}{name}")
    for group in app.registered_groups:
        group.short_help, group.epilog = _texts(f"{place}{group.name}")
        if group.typer_instance is not None:
            add_help(group.typer_instance, f"{place}{group.name} ")


def _texts(name: str) -> tuple[str, str]:
    """The line of a command, and its examples each on a line that is not filled up (``\\b``)."""
    told = COMMANDS[name]
    return told.line, "\n".join(("\b", "Examples:", *(f"  {example}" for example in told.examples)))
