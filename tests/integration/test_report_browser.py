"""The report in a real browser: the pictures are drawn, in both themes, and nothing complains."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

from tests.sample import sample_experiment
from vmtax.compare import comparisons
from vmtax.report.html import render_html
from vmtax.report.picture import pictures
from vmtax.report.summary import headline_metrics
from vmtax.report.view import view

OPTIONS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync"),
    *("--enable-logging=stderr", "--virtual-time-budget=30000"),
)
THEMES = {  # how chromium is told, and the first contrast's colour there
    "--blink-settings=preferredColorScheme=1": "rgb(27, 94, 158)",
    "--blink-settings=preferredColorScheme=0": "rgb(125, 180, 234)",  # dark
}


def loaded(page: Path, theme: str, profile: Path) -> tuple[str, list[str]]:
    """(the document as it stands after loading, what the page's scripts complained about)."""
    chromium = shutil.which("chromium")
    assert chromium, "no chromium: install the Debian package of that name (apt-get install chromium)"
    command = (chromium, *OPTIONS, theme, f"--user-data-dir={profile}", "--dump-dom", page.as_uri())
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    return done.stdout, [line for line in done.stderr.splitlines() if ":CONSOLE" in line or "Uncaught" in line]


def test_the_pictures_are_drawn(tmp_path: Path) -> None:
    experiment = sample_experiment(treatments=4)
    made = comparisons(experiment.treatments, experiment.trials, experiment.boots)
    shown = pictures(view(experiment, made), headline_metrics(experiment, made))
    points = sum(len(trace["x"]) for picture in shown for trace in picture.figure["data"])
    page = tmp_path / "report.html"
    page.write_text(render_html(experiment, made), encoding="utf-8")
    for number, (theme, colour) in enumerate(THEMES.items()):
        document, complaints = loaded(page, theme, tmp_path / f"profile{number}")
        assert complaints == []
        assert 'data-pictures="drawn"' in document
        drawn = document.partition("<body")[2].partition('id="figures"')[0]
        assert drawn.count('class="main-svg"') >= len(shown) == 3
        assert points == drawn.count('<path class="point"') == drawn.count('<path class="xerror"') > 50
        assert colour in drawn
        assert drawn.count('<button type="button"') == len(shown)  # saving the picture, and nothing that uploads it
