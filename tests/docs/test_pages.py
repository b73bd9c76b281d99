"""Generated pages and pictures are those of the code, and links of the README lead somewhere."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
from pathlib import Path

import pytest
from markdown_it import MarkdownIt

from tests.docs.blocks import ROOT
from xstage_tune.model import burst_gap

DOCS = ROOT / "docs"
README = ROOT / "README.md"


def test_generated_pages_and_figures_are_current(tmp_path: Path) -> None:
    subprocess.run([sys.executable, str(DOCS / "make"), str(tmp_path)], check=True, timeout=300)
    made = [file.relative_to(tmp_path) for file in tmp_path.rglob("*") if file.is_file()]
    assert made
    for name in made:
        assert (DOCS / name).read_text() == (tmp_path / name).read_text(), f"{name}: run python docs/make"


def test_the_picture_stalls_as_the_law_says() -> None:
    spec = importlib.util.spec_from_file_location("overview", DOCS / "make" / "overview.py")
    assert spec is not None
    assert spec.loader is not None
    overview = importlib.util.module_from_spec(spec)
    sys.modules["overview"] = overview  # dataclasses look their module up
    try:
        spec.loader.exec_module(overview)
    finally:
        del sys.modules["overview"]
    path = overview.calibrated_path()
    spans = overview.run(["linear-2"] * 8, path).spans
    gap_ns = next(span.end_ns - span.begin_ns for span in spans if span.what == "linear-2")
    stall_ns = spans[-1].end_ns - spans[-1].begin_ns
    assert spans[-1].what == "stall"
    issue_ns = burst_gap.issue_ns(
        gap_ns=gap_ns,
        free_issue_ns=path.free_issue_ns,
        volume_bytes=path.volume_bytes,
        drain_bytes_per_s=path.bytes_per_ns * 1e9,
    )
    assert stall_ns == pytest.approx(float(issue_ns) - path.free_issue_ns, rel=1e-9)
    long_gap = overview.run(["linear-1", "linear-2"] * 8, path)
    assert long_gap.stall_ns == 0.0


def test_links_of_the_readme_lead_somewhere() -> None:
    links = [
        str(child.attrGet("href") or child.attrGet("src"))
        for token in MarkdownIt().enable("table").parse(README.read_text(encoding="utf-8"))
        for child in token.children or ()
        if child.type in ("link_open", "image")
    ]
    local = [link for link in links if "://" not in link]
    assert local
    for link in local:
        name, _, anchor = link.partition("#")
        file = ROOT / name if name else README
        assert file.exists(), link
        assert not anchor or anchor in anchors(file), link


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.*)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w -]", "", heading).strip().lower().replace(" ", "-") for heading in headings}
