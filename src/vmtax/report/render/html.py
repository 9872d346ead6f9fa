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
from hashlib import sha256
from importlib import resources
from pathlib import Path

from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from vmtax import __version__
from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Experiment, Json
from vmtax.core.units import format_duration, format_value
from vmtax.report.figures import (
    crossed_picture,
    forests,
    latency_pictures,
    order_picture,
    rank_pictures,
    tradeoff_picture,
)
from vmtax.report.sections import iterations
from vmtax.report.sections.drift import THIRDS_ROUNDS, courses
from vmtax.report.sections.factor_effects import Deciding, deciding
from vmtax.report.sections.interactions import grids
from vmtax.report.sections.latency import JUDGED, distributions, percentile, tabled
from vmtax.report.sections.noise import READING, noise_floor
from vmtax.report.sections.outliers import FEWEST, outliers
from vmtax.report.sections.rankings import decided, factor_tables, ranked
from vmtax.report.sections.requirements import GIVE_UPS, recommendation_if_known
from vmtax.report.sections.requirements import READING as GIVE_UPS_READING
from vmtax.report.sections.requirements import TITLE as ADVICE
from vmtax.report.sections.robustness import HEADS as BESIDE_HEADS
from vmtax.report.sections.robustness import READING as BESIDE_READING
from vmtax.report.sections.robustness import robustness
from vmtax.report.sections.scores import TITLE as STORAGE_TITLE
from vmtax.report.sections.scores import storage
from vmtax.report.sections.speed_vs_cpu import tradeoffs
from vmtax.report.sections.summary import CONFIDENCE, banner, findings, headline, machine_name, sureness
from vmtax.report.view import cost, deviation, flat_facts, label, title, view
from vmtax.report.wording.glossary import GLOSSARY, term_id

MOST_OUTLIERS = 60  # rows of the table; the farthest come first


def render_html(analysis: Analysis) -> str:
    """The report's text, at most 3 MB, most of which is plotly."""
    run = analysis.experiment
    shown = view(analysis)
    latencies = distributions(analysis)
    course = courses(analysis, tuple(analysis.headline_metrics.values()))
    overheads, tails, order = forests(shown), latency_pictures(latencies), order_picture(course)
    told = ranked(analysis)
    ranks = rank_pictures(analysis, told)
    decides = deciding(analysis)
    crossed = crossed_picture(grids(analysis), told, _shares(decides))
    tradeoff = tradeoff_picture(tradeoffs(analysis), _shares(decides))
    pictures = (*overheads, *ranks, *filter(None, (crossed, tradeoff)), *tails, *((order,) if order else ()))
    drawn = {picture.id: picture.drawing for picture in pictures}
    script = _own_text("page.js")
    plotly = _plotly() if drawn else b""
    page = _environment().get_template("page.html.j2")
    return page.render(
        view=shown,
        rounds=analysis.rounds,
        sides=analysis.sides,
        run=run,
        banner=banner(analysis),
        headline=headline(analysis),
        findings=findings(analysis),
        sure=sureness(analysis),
        advised=recommendation_if_known(analysis),
        advised_titles=(ADVICE, GIVE_UPS),
        advised_reading=GIVE_UPS_READING,
        overheads=overheads,
        latencies=latencies,
        shares=tabled(latencies),
        tails=tails,
        courses=course,
        order=order,
        outliers=outliers(analysis),
        iterations=iterations.lines(analysis),
        beside=robustness(analysis),
        beside_heads=BESIDE_HEADS,
        beside_reading=BESIDE_READING,
        floors=noise_floor(analysis),
        floor_reading=READING,
        rankings=list(zip(told, ranks, strict=True)),
        effects=list(zip(factor_tables(analysis), decides, strict=True)),
        crossed=crossed,
        tradeoff=tradeoff,
        storage=storage(analysis),
        storage_title=STORAGE_TITLE,
        decided=list(decided(analysis)),
        policy=_policy(script.encode(), plotly),
        figure_data=_gzipped(_json(drawn)) if drawn else None,
        plotly=_packed(plotly),
        style=_own_text("style.css"),
        script=script,
        glossary=[term for term in GLOSSARY if analysis.emulated or term.word != "emulated"],
        machine=machine_name(run),
        facts={path: list(flat_facts(_told_nowhere_else(facts))) for path, facts in run.facts.items()},
        command_lines=_command_lines(run),
        confidence=CONFIDENCE,
        date=_date(run.created),
        took=None if run.finished is None else format_duration(run.finished - run.created),
        version=__version__,
    )


@lru_cache(maxsize=1)
def _environment() -> Environment:
    environment = Environment(
        loader=PackageLoader("vmtax.report", "page"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["whole"] = _whole
    environment.globals.update(
        cost=cost,
        deviation=deviation,
        format_value=format_value,
        label=label,
        percentile=percentile,
        term_id=term_id,
        title=title,
        FEWEST=FEWEST,
        JUDGED=JUDGED,
        MOST_OUTLIERS=MOST_OUTLIERS,
        THIRDS_ROUNDS=THIRDS_ROUNDS,
    )
    return environment


def _whole(text: str) -> str:
    """`text` whose numbers stay on one line with their units, and intervals whole."""
    text = re.sub(r"\[[^\s,\]]+, [^\s,\]]+\]", lambda found: found[0].replace(" ", "\N{NO-BREAK SPACE}"), text)
    return re.sub(r"(?<=\d) (?=%|ms\b|s\b|m\b|h\b|d\b|[KM]?i?B\b)|(?<=\d [mhd]) (?=\d)", "\N{NO-BREAK SPACE}", text)


def _own_text(name: str) -> Markup:
    return Markup(resources.files("vmtax.report").joinpath("page", name).read_text("utf-8"))  # ours, not measured


def _json(data: object) -> bytes:
    return json.dumps(data, allow_nan=False, separators=(",", ":")).encode()


def _told_nowhere_else(facts: Json) -> Json:
    """Without what disks can do, which has tables of its own."""
    disk = facts.get("disk")
    if not isinstance(disk, dict):
        return facts
    return {**facts, "disk": {name: fact for name, fact in disk.items() if name != "features"}}


def _shares(decides: Sequence[Deciding]) -> dict[str, float]:
    """Factor -> the share that it explains, of the metric of which it explains most."""
    found: dict[str, float] = {}
    for term in (term for one in decides for term in one.terms):
        found[term.name] = max(found.get(term.name, 0.0), term.share)
    return found


def _gzipped(data: bytes) -> Markup:
    """Letters and digits, whatever was measured; page.js inflates it."""
    return Markup(base64.b64encode(gzip.compress(data, compresslevel=9, mtime=0)).decode())


@lru_cache(maxsize=1)
def _plotly() -> bytes:
    """plotly.min.js, found without importing plotly, which takes long."""
    package = importlib.util.find_spec("plotly")
    if package is None or package.origin is None:
        raise FileNotFoundError("the Python package plotly is not installed: pip install plotly")
    return (Path(package.origin).parent / "package_data" / "plotly.min.js").read_bytes()


@lru_cache(maxsize=1)
def _packed(script: bytes) -> Markup:
    """Compressed to a third; once for all reports, for it takes a while."""
    return _gzipped(script)


def _policy(*scripts: bytes) -> str:
    """A content security policy: nothing is loaded, and no script runs but these, also if markup slipped through."""
    hashes = " ".join(f"'sha256-{base64.b64encode(sha256(script).digest()).decode()}'" for script in scripts)
    return f"default-src 'none'; style-src 'unsafe-inline'; script-src {hashes}; img-src data: blob:"


def _command_lines(experiment: Experiment) -> list[tuple[str, str, str]]:
    """(treatment, machine path, QEMU's command line), from the first boot of each."""
    found: dict[tuple[str, str], str] = {}
    for boot in experiment.boots:
        if (boot.treatment, boot.path) not in found:
            found[boot.treatment, boot.path] = shlex.join(boot.argv)
    return [(*key, line) for key, line in found.items()]


def _date(seconds: float) -> str:
    return f"{datetime.fromtimestamp(seconds, UTC):%d %B %Y, %H:%M} UTC".lstrip("0")
