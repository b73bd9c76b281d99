"""From the studies of a kernel of one's own to a file that a serving framework reads."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from pathlib import Path

from xstage_tune.base.files import refuse_existing, write_text
from xstage_tune.base.json_output import to_json
from xstage_tune.export.framework_files import framework_file, read_template
from xstage_tune.export.names import ExportFormat
from xstage_tune.export.record import TunedConfig
from xstage_tune.export.study import add_export, study_history, suite_histories
from xstage_tune.search.journal import studied_platform
from xstage_tune.store.facade import Store


@dataclass(frozen=True, slots=True)
class FrameworkExport:
    """A file and that with its provenance; ``left_out`` are unfinished studies of a suite, by id."""

    path: Path
    provenance: Path
    exports: tuple[TunedConfig, ...]
    left_out: tuple[str, ...] = ()


def export_framework(
    store: Store,
    to: ExportFormat,
    template_path: Path,
    folder: Path,
    *,
    study: str | None = None,
    suite: str | None = None,
    platform: str | None = None,
    force: bool = False,
    unfinished: bool = False,
) -> FrameworkExport:
    """Write one study's answer, or those of a suite, an entry for each number of tokens.

    The readers take no key that they do not know, so where the numbers come from stands beside the file, in
    ``*.provenance.json``. It is written first: no file is without it.

    Args:
        folder: where the framework looks for such files; the file's name is the framework's.
        study, suite: one of the two, as ``--study`` and ``--suite`` take them.
        platform, unfinished: as of :func:`~xstage_tune.export.study.export_study`.

    Raises:
        UsageError: no such study or suite, without a result; as :func:`.framework_files.framework_file`; or
            one of the two files exists and ``force`` is not set.
        StoreError: the database failed.
    """
    template = read_template(to, template_path)
    left_out: tuple[str, ...] = ()
    if suite is not None:
        found = suite_histories(store, suite, unfinished=unfinished)
        taken, left_out = found.taken, found.left_out
    else:
        row = store.studies.get(study or "latest")
        taken = [(row, study_history(store, row, studied_platform(row, platform), unfinished=unfinished))]
    exports = tuple(history.tuned for _, history in taken)
    place, text = framework_file(to, template, str(template_path), exports)
    path = folder / place
    provenance = path.with_suffix(".provenance.json")
    for file in (path, provenance):
        refuse_existing(file, force)
    sha256 = hashlib.sha256(text.encode()).hexdigest()
    keys = {"file": path.name, "sha256": sha256, "format": f"xstage-tune.{to}", "template": template}
    # A lookup needs the platform's terms, a reader of this file does not: they are most of an export.
    said = [tuned.model_dump(mode="json", exclude={"default_terms"}, exclude_none=True) for tuned in exports]
    write_text(provenance, to_json({**keys, "exports": said}), force=force)
    write_text(path, text, force=force)
    for row, _ in taken:
        add_export(store, row, to, path, text)
    return FrameworkExport(path, provenance, exports, left_out)
