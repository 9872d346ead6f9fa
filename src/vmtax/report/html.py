"""The HTML report: one self-contained file. What was measured is only ever text in it, never markup or code."""

from __future__ import annotations

import base64
import gzip
import importlib.util
import json
import re
import shlex
from collections.abc import Sequence
from datetime import UTC, datetime
from functools import lru_cache
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vmtax import __version__
from vmtax.report.picture import pictures
from vmtax.report.summary import CONFIDENCE, banner, findings, headline, headline_metrics, machine_name
from vmtax.report.view import View, cost, flat_facts, label, view
from vmtax.result import Comparison, Experiment
from vmtax.units import format_duration


def render_html(experiment: Experiment, comparisons: Sequence[Comparison]) -> str:
    """The report's text, at most 3 MB, most of which is plotly."""
    shown = view(experiment, comparisons)
    figures = pictures(shown, headline_metrics(experiment, comparisons))
    return (
        _environment()
        .get_template("template.html.j2")
        .render(
            view=shown,
            run=experiment,
            banner=banner(experiment),
            headline=headline(experiment, comparisons),
            findings=findings(experiment, comparisons),
            figures=figures,
            figure_data=_script_json({figure.id: figure.figure for figure in figures}),
            plotly=Markup(_packed_plotly() if figures else ""),
            style=_own_text("style.css"),
            script=_own_text("page.js"),
            machine=machine_name(experiment.facts),
            facts={path: list(flat_facts(facts)) for path, facts in experiment.facts.items()},
            command_lines=_command_lines(shown),
            confidence=CONFIDENCE,
            date=_date(experiment.created),
            took=None if experiment.finished is None else format_duration(experiment.finished - experiment.created),
            version=__version__,
        )
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vmtax.report", ""),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["whole"] = _whole
    environment.globals.update(cost=cost, label=label)
    return environment


def _whole(text: str) -> str:
    """`text` whose numbers stay on one line with their units."""
    return re.sub(r"(?<=\d) (?=%|ms\b|s\b|m\b|h\b|d\b)", "\N{NO-BREAK SPACE}", text)


def _own_text(name: str) -> Markup:
    return Markup(resources.files("vmtax.report").joinpath(name).read_text("utf-8"))  # ours, not measured


def _script_json(data: object) -> Markup:
    """JSON that cannot end the script element it stands in, nor open a comment."""
    text = json.dumps(data, allow_nan=False, separators=(",", ":"))
    for character in "<>&":
        text = text.replace(character, f"\\u{ord(character):04x}")
    return Markup(text)


@lru_cache(maxsize=1)
def _packed_plotly() -> str:
    """plotly.min.js, compressed to a third; page.js inflates it. Found without importing plotly, which takes long."""
    package = importlib.util.find_spec("plotly")
    if package is None or package.origin is None:
        raise FileNotFoundError("the Python package plotly is not installed: pip install plotly")
    script = Path(package.origin).parent / "package_data" / "plotly.min.js"
    return base64.b64encode(gzip.compress(script.read_bytes(), compresslevel=9, mtime=0)).decode()


def _command_lines(shown: View) -> list[tuple[str, str, str]]:
    """(treatment, machine path, QEMU's command line), from the first boot of each."""
    found: dict[tuple[str, str], str] = {}
    for boot in shown.experiment.boots:
        if (boot.treatment, boot.path) not in found:
            found[boot.treatment, boot.path] = shlex.join(boot.argv)
    return [(*key, line) for key, line in found.items()]


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%d %B %Y, %H:%M} UTC".lstrip("0")
