"""C++ that compiles only where a struct of the kernels is laid out as the dtype that the host fills it by."""

from __future__ import annotations

from pathlib import Path

import numpy as np

from xstage_tune.cuda.compiler import compile_kernel
from xstage_tune.cuda.sources import kernels_root


def kernels_in(folder: Path, *families: str) -> Path:
    """A folder of the kernels of some families, with room for one more file beside them."""
    root = folder / "kernels"
    root.mkdir()
    for name in ("common", "include", *families):
        (root / name).symlink_to(kernels_root() / name)
    return root


def compile_layout(root: Path, source: str, struct: str, dtype: np.dtype[np.void], **defines: int) -> None:
    """Compile what holds ``struct`` of ``source`` against ``dtype``.

    Raises:
        KernelCompileError: the two differ.
    """
    text = f'#include "{source}"\n{layout_checks(struct, dtype)}\nextern "C" __global__ void kernel() {{}}\n'
    (root / "layout.cu").write_text(text)
    compile_kernel("layout.cu", "sm_90a", defines, ("kernel",), root)


def layout_checks(struct: str, dtype: np.dtype[np.void]) -> str:
    """C++ that compiles only if ``struct`` is laid out as ``dtype``."""
    assert dtype.fields is not None
    checks = [f"static_assert(sizeof(xstage::{struct}) == {dtype.itemsize});"]
    for name, (field, offset, *_) in dtype.fields.items():
        checks += [
            f"static_assert(__builtin_offsetof(xstage::{struct}, {name}) == {offset});",
            f"static_assert(sizeof(xstage::{struct}::{name}) == {field.itemsize});",
        ]
    return "\n".join(checks)
