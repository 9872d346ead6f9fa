"""Draws README's picture: the first screen of a sample run, as SVG. `python -m tools.picture` writes docs/answer.svg.

The run is the one of the tests, whose figures are made up. A test compares the picture with what is drawn now.
"""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

from rich.console import Console
from rich.terminal_theme import MONOKAI

from tests.sample import sample_experiment, with_repeat
from vmtax.analysis.analysis import Analysis
from vmtax.report.show import render

PICTURE = Path(__file__).parent.parent / "docs/answer.svg"
COLUMNS = 80


def picture() -> str:
    """The text of the SVG; the same for the same program."""
    with Path(os.devnull).open("w", encoding="utf-8") as nowhere:
        console = Console(
            record=True, width=COLUMNS, file=nowhere, force_terminal=True, color_system="truecolor", highlight=False
        )
        console.print(render(Analysis(with_repeat(sample_experiment()))))
    svg = console.export_svg(title="vmtax show", theme=MONOKAI, unique_id="answer")
    return re.sub(r"@font-face \{[^}]*\}\s*", "", svg)  # it loads nothing: any font of one width will do


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
    print(PICTURE, file=sys.stderr)
