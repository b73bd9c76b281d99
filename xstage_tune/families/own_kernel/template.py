"""The template of a space: the file, and beside it what measures a stand-in, so that it runs as it is."""

from __future__ import annotations

import re
import tomllib

from xstage_tune.base.assets import data_dir
from xstage_tune.base.profile_files import check_profile
from xstage_tune.families.own_kernel.workload import OwnSpace

#: What measures the stand-in.
BENCH = "bench.py"


def space_template(name: str) -> str:
    """A commented space file called ``name``.

    Raises:
        UsageError: a space cannot be called so.
    """
    text = (data_dir("profiles") / "spaces" / "template" / "space.toml").read_text(encoding="utf-8")
    text = re.sub(r'^name = ".*"$', lambda _: f'name = "{name}"', text, flags=re.MULTILINE)
    check_profile(OwnSpace, tomllib.loads(text), "template")
    return text


def bench_template() -> str:
    """What stands beside it as :data:`BENCH`."""
    return (data_dir("profiles") / "spaces" / "template" / BENCH).read_text(encoding="utf-8")
