"""What stands above the families asks them, and never which one it has before it."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

PRODUCT = Path(__file__).parents[2] / "xstage_tune"
SLICES = [folder for folder in (PRODUCT / "families").iterdir() if (folder / "family.py").is_file()]
#: The attention's own kernel: what runs it, what times it, and the torch op.
OF_ONE_KERNEL = ("families", "cuda", "ops", "experiments/timing")


def trees(folder: Path) -> Iterator[tuple[str, ast.Module]]:
    for file in sorted(folder.rglob("*.py")):
        yield file.relative_to(PRODUCT).as_posix(), ast.parse(file.read_text())


def types_of_families() -> set[str]:
    found = (node for folder in SLICES for _, tree in trees(folder) for node in ast.walk(tree))
    return {node.name for node in found if isinstance(node, ast.ClassDef)}


def kinds_of_families() -> set[str]:
    from xstage_tune.families.registry import built_in_families

    return {kind for one in built_in_families() for kind in (one.workload_kind, one.config_kind)}


def lines_that_ask(tree: ast.Module, types: set[str], kinds: set[str]) -> Iterator[int]:
    """Lines that ask for a family's type or kind."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "isinstance":
            if {name.id for name in ast.walk(node.args[1]) if isinstance(name, ast.Name)} & types:
                yield node.lineno
        elif isinstance(node, ast.Compare):
            sides = (node.left, *node.comparators)
            if {side.value for side in sides if isinstance(side, ast.Constant)} & kinds:
                yield node.lineno


def test_no_module_outside_the_families_asks_for_their_types() -> None:
    types, kinds = types_of_families(), kinds_of_families()
    assert {"MoeWorkload", "AttentionConfig", "MoeEstimate"} <= types
    found = [
        f"{name}:{line}"
        for name, tree in trees(PRODUCT)
        if not name.startswith(OF_ONE_KERNEL)
        for line in lines_that_ask(tree, types, kinds)
    ]
    assert found == []


#: What serves every family: a suite is of one by what it is.
OF_ALL_FAMILIES = (
    *("estimates", "simulator", "devices", "audit", "calibration", "search", "experiments/emulation"),
    *("doctor", "commands"),
)


def test_what_serves_every_family_imports_none() -> None:
    slices = {f"xstage_tune.families.{folder.name}" for folder in SLICES}
    assert len(slices) >= 2
    found = [
        f"{name}: {node.module}"
        for name, tree in trees(PRODUCT)
        if name.startswith(OF_ALL_FAMILIES) and name != "search/suite.py"
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and ".".join((node.module or "").split(".")[:3]) in slices
    ]
    assert found == []
