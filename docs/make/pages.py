"""The generated pages under ``reference/``."""

from __future__ import annotations

import re
from collections.abc import Iterator

import typer
from schema_pages import file_section
from typer.cli import get_docs_for_click
from typer.main import get_command

from xstage_tune.commands._app import app
from xstage_tune.families.attention_a2a.config import AttentionConfig
from xstage_tune.families.attention_a2a.workload import AttentionWorkload
from xstage_tune.families.megamoe.config import MegaMoeConfig
from xstage_tune.families.megamoe.workload import MoeWorkload
from xstage_tune.families.own_kernel.workload import OwnSpace
from xstage_tune.platforms.schema import PlatformProfile

_GENERATED = "<!-- Written by `python docs/make`; do not edit. -->\n\n"

_WORKLOADS = """# Workload files

One TOML file describes one layer on one group of GPUs: a MoE layer (`kind = "moe"`) or an attention
(`kind = "attention"`). `xstage-tune workloads new` writes a commented one. A kernel of your own has
a file too (`kind = "own"`), its space, which `xstage-tune init-space` writes. Files are read strictly: a key
that is missing, misspelt or out of range is an error that names the file and the key.

"""

_PLATFORMS = """# Platform files

One TOML file describes one sending GPU and one path, calibrated. `xstage-tune calibrate` writes it;
`xstage-tune platforms new` writes a commented one to fill in by hand. Numbers carry their `source`: what that
means for trust is on [Where a number comes from](../read/origins.md).

"""

_CONFIGS = """# Config files

A config is what a search chooses and a kernel is compiled for. `audit`, `emulate` and `profile` take one with
`--config FILE.toml` or `.json`; exports hold one in their section `config`. A config that does not fit a
workload or a GPU is refused with the resource that does not suffice.

```toml
# mine.toml
kind = "attention"
block_m = 128
block_n = 128
kv_stages = 2
output_staging = "dedicated-x1"
tile_order = "own-last"
store_flavour = "st.v4"
```

```console
$ xstage-tune audit --workload fa-a2a/paper --platform h200-peer --config mine.toml
fa-a2a/paper on h200-peer
design test      given config: 128x128, 2 KV stages, dedicated-x1, own-last, st.v4
...
```

"""

_CLI = """# Commands

Each page of `--help` in one place. Streams and exit codes are on [Exit codes and streams](exit-codes.md).

"""


def pages() -> Iterator[tuple[str, str]]:
    """(file below docs/, text) of each generated page."""
    yield (
        "reference/workloads.md",
        _GENERATED
        + _WORKLOADS
        + "\n".join(
            (
                file_section("MoE layer", MoeWorkload),
                file_section("Attention", AttentionWorkload),
                file_section("Kernel of your own", OwnSpace),
            )
        ),
    )
    yield "reference/platforms.md", _GENERATED + _PLATFORMS + file_section("Platform", PlatformProfile)
    yield (
        "reference/configs.md",
        _GENERATED
        + _CONFIGS
        + "\n".join(
            (file_section("MegaMoE config", MegaMoeConfig), file_section("Attention config", AttentionConfig))
        ),
    )
    yield "reference/commands.md", _GENERATED + _CLI + _commands()


def _commands() -> str:
    """What ``--help`` says of every command, by typer's own generator of documents."""
    command = get_command(app)
    text = get_docs_for_click(
        obj=command, ctx=typer.Context(command, info_name="xstage-tune"), name="xstage-tune"
    )
    text = text.replace("```console", "```text")
    text = re.sub(r"\n+\x08\nExamples:\n((?:  .*\n)+)", _examples, text)
    # Its lists of commands are cut to a width; every command has its heading below.
    text = re.sub(r"\*\*Commands\*\*:\n\n(\* .*\n)+\n", "", text)
    return re.sub(r"^(#+) ", r"#\1 ", text, flags=re.MULTILINE).rstrip() + "\n"


def _examples(found: re.Match[str]) -> str:
    lines = "".join(f"{line.strip()}\n" for line in found[1].splitlines())
    return f"\n\n**Examples**:\n\n```sh\n{lines}```\n"
