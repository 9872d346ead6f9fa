"""Draws README's picture: the first screen of a stored run, as SVG. `python tools/picture.py` writes docs/answer.svg.

The run is docs/sample.run.gz, which `vmtax import` reads too. A test compares the picture with what is drawn now.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path
from unittest import mock

from rich.console import Console
from rich.terminal_theme import MONOKAI

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Experiment
from vmtax.experiment import archive
from vmtax.report.render.terminal import render
from vmtax.store import Store

DOCS = Path(__file__).parent.parent / "docs"
SAMPLE = DOCS / "sample.run.gz"
PICTURE = DOCS / "answer.svg"
COLUMNS = 80


def sample() -> Experiment:
    """The run in SAMPLE, by way of a store of its own."""
    with tempfile.TemporaryDirectory() as home, mock.patch.dict(os.environ, {"XDG_DATA_HOME": home}), Store() as store:
        return store.load(archive.import_(store, SAMPLE).id)


def picture() -> str:
    """The text of the SVG; the same for the same run and the same program."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor")
        console.print(render(Analysis(sample()), full=False))
    return console.export_svg(title="vmtax show", theme=MONOKAI, unique_id="answer")


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(PICTURE, file=sys.stderr)
