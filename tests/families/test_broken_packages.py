"""Packages whose family cannot be used: one clear line where families are asked for, nothing elsewhere."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.conftest import RunCli
from xstage_tune.families.registry import families

Install = Callable[[str, str], None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Install]:
    """Install a package of one module, whose entry point names its ``FAMILY``."""

    def make(name: str, module: str) -> None:
        folder = tmp_path / name
        information = folder / f"{name}-1.0.dist-info"
        information.mkdir(parents=True)
        (folder / f"{name}.py").write_text(module)
        (information / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        entry = f"[xstage_tune.families]\nfound = {name}:FAMILY\n"
        (information / "entry_points.txt").write_text(entry)
        monkeypatch.syspath_prepend(str(folder))
        families.cache_clear()

    yield make
    families.cache_clear()


OF_KINDS = """
from xstage_tune.families.attention_a2a.family import AttentionFamily
class Copy(AttentionFamily):
    workload_kind, config_kind = {kinds!r}
FAMILY = Copy()
"""


@pytest.mark.parametrize(
    ("name", "module", "words"),
    [
        ("does_not_import", "import no_such_module", "no_such_module"),
        ("lacks_its_family", "", "FAMILY"),
        ("fails_at_length", "raise RuntimeError('first line\\nsecond line')", "first line second line"),
        ("is_no_family", "FAMILY = 3", "int"),
        ("takes_a_workload_kind", OF_KINDS.format(kinds=("moe", "copy")), "'moe'"),
        ("takes_a_config_kind", OF_KINDS.format(kinds=("copy", "megamoe")), "'megamoe'"),
    ],
)
def test_it_is_told_where_all_families_are_asked_for(
    run_cli: RunCli, install: Install, name: str, module: str, words: str
) -> None:
    install(name, module)
    result = run_cli("workloads", "new", "mine", "--kind", "nothing-shipped")
    assert result.exit_code == 2
    message, hint = result.stderr.splitlines()
    assert name.replace("_", "-") in message.replace("_", "-")
    assert words in message
    assert "uninstall" in hint


def test_what_is_shipped_works_beside_it(run_cli: RunCli, install: Install) -> None:
    install("does_not_load", "import no_such_module")
    assert run_cli("workloads", "show", "megamoe/deepseek-v4-flash").exit_code == 0
    assert (
        run_cli("audit", "-w", "megamoe/deepseek-v4-flash", "-p", "h200-host", "--closed-forms").exit_code
        == 0
    )
