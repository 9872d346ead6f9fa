"""Draws README's picture: the first screen of a real run, as SVG. `python -m tools.picture` writes docs/answer.svg.

The run is of a machine without KVM. A test compares the picture with what is drawn now.
"""

from __future__ import annotations

import os
import re
import sys
import tempfile
from dataclasses import replace
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Experiment
from vmtax.experiment import archive
from vmtax.report.show import render
from vmtax.store import Store

ROOT = Path(__file__).parent.parent
PICTURE = ROOT / "docs/answer.svg"
RUN = ROOT / "tests/golden/picture/20261127-0140-quick-db90.run.gz"
COLUMNS = 80


def run() -> Experiment:
    """The run that is drawn, as on the machine that measured it."""
    with tempfile.TemporaryDirectory() as name, Store(Path(name) / "store") as store:
        found = store.load(archive.import_(store, RUN).id)
    return replace(found, host="local", label="", options={**found.options, "imported": False})


def picture() -> str:
    """The text of the SVG; the same for the same program."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(
            record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor", highlight=False
        )
        console.print(render(Analysis(run())))
    svg = console.export_svg(title="vmtax show", theme=MONOKAI, unique_id="answer")
    return re.sub(r"@font-face \{[^}]*\}\s*", "", svg)  # it loads nothing: any font of one width will do


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(PICTURE, file=sys.stderr)
