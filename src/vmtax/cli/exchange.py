"""What `vmtax export` and `import` do."""

from __future__ import annotations

from pathlib import Path

from vmtax.cli.app import say, warn, with_result
from vmtax.cli.files import check_input, check_output
from vmtax.experiment import archive
from vmtax.store import Store


def export(run: str, output: Path | None, *, redact: bool) -> None:
    """Say which file it is, and what could not be exported."""
    from vmtax.analysis.redaction import redacted

    if output is not None:
        check_output(output, regular=True)
    with Store(reads=True) as store:
        exported = archive.export(store, with_result(store, run), output, redacted if redact else None)
    say(exported.file)
    if exported.missing:
        warn(f"raw outputs left out: {len(exported.missing)}; {exported.missing[0]}")


def import_(file: Path) -> None:
    """With the results that every report needs."""
    from vmtax.cli.keeping import keep_results  # here, because nothing is computed for an export

    check_input(file, "`vmtax export` wrote")
    with Store() as store:
        added = archive.import_(store, file)
        keep_results(store, added.id)
    if added.dropped:
        warn(added.dropped)
    say(f"{added.id}  imported {added.trials} measurements of {added.name}")
