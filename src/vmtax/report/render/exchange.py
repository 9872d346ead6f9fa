"""The costs of runs in the formats of programs that keep and watch figures. A cost is the ratio of times for the same
work, so less is always better, and never near 0: an alert at 1.05 is about 5 % more time.

Sources: Bencher Metric Format, https://bencher.dev/docs/reference/bencher-metric-format/; customSmallerIsBetter of
github-action-benchmark; the text format of Prometheus as node_exporter's textfile collector reads it, which allows no
timestamps and takes the newest file whole.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterator, Sequence

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.many.costs import UNKNOWN_WORK, WITHOUT_COSTS, CostFigure, RunCosts, costs_of_work
from vmtax.core.errors import BadInput
from vmtax.core.units import printable

MEASURE = "time-ratio"  # of Bencher
LONGEST_BENCHMARK = 1024  # bytes of a benchmark's name that Bencher takes
UNIT = "x the time"


class NoCosts(BadInput):
    """A run that compared nothing in enough rounds, or whose plan this version cannot read."""


def bencher_of_run(analysis: Analysis) -> str:
    """A run in Bencher Metric Format. Raises NoCosts."""
    return bencher(_costs(analysis))


def github_action_of_run(analysis: Analysis) -> str:
    """A run for github-action-benchmark. Raises NoCosts."""
    return github_action(_costs(analysis))


def textfile_of_run(analysis: Analysis) -> str:
    """A run for node_exporter's textfile collector. Raises NoCosts."""
    return textfile([_costs(analysis)])


def _costs(analysis: Analysis) -> RunCosts:
    return costs_of_work(analysis.experiment, UNKNOWN_WORK)


def bencher(costs: RunCosts) -> str:
    """Bencher Metric Format. Raises NoCosts."""
    found = {}
    for figure in _figures(costs):
        measure = {"value": math.exp(figure.log)}
        if figure.low is not None and figure.high is not None:
            measure |= {"lower_value": math.exp(figure.low), "upper_value": math.exp(figure.high)}
        found[_name(figure).encode()[:LONGEST_BENCHMARK].decode(errors="ignore")] = {MEASURE: measure}
    return f"{json.dumps(found, indent=2)}\n"


def github_action(costs: RunCosts) -> str:
    """customSmallerIsBetter of github-action-benchmark. Raises NoCosts: it refuses an empty list."""
    found = []
    for figure in _figures(costs):
        value = math.exp(figure.log)
        entry = {"name": _name(figure), "value": value, "unit": UNIT}
        if figure.low is not None and figure.high is not None:
            entry["range"] = f"± {max(math.exp(figure.high) - value, value - math.exp(figure.low)):.4f}"
        entry["extra"] = f"{costs.id} on {costs.host_name}, {figure.rounds} rounds"
        found.append(entry)
    return f"{json.dumps(found, indent=2, ensure_ascii=False)}\n"


def textfile(runs: Sequence[RunCosts]) -> str:
    """The text format of Prometheus; of each host, run and plan, one run at most. Raises NoCosts."""
    ratios = [line for run in runs for figure in _figures(run) for line in _samples(run, figure)]
    ends = [f"vmtax_run_end_seconds{_labels(run)} {run.ended!r}" for run in runs]
    lines = (
        "# HELP vmtax_time_ratio Time for the same work, as a ratio to that on the baseline, and its 95 % interval.",
        "# TYPE vmtax_time_ratio gauge",
        *ratios,
        "# HELP vmtax_run_end_seconds When the run ended, in seconds since the epoch.",
        "# TYPE vmtax_run_end_seconds gauge",
        *ends,
    )
    return "".join(f"{line}\n" for line in lines)


def _samples(run: RunCosts, figure: CostFigure) -> Iterator[str]:
    subject = figure.subject
    about = {
        "metric": subject.metric.name,
        "treatment": subject.treatment,
        "baseline": subject.baseline,
        "emulated": "true" if figure.emulated else "false",
    }
    for bound, log in (("estimate", figure.log), ("lower", figure.low), ("upper", figure.high)):
        if log is not None:
            yield f"vmtax_time_ratio{_labels(run, **about, bound=bound)} {math.exp(log)!r}"


def _labels(run: RunCosts, **more: str) -> str:
    pairs = {"host": run.host_name, "plan": run.plan, **more}
    return "{" + ",".join(f'{name}="{_escaped(text)}"' for name, text in pairs.items()) + "}"


def _escaped(text: str) -> str:
    return printable(text).replace("\\", r"\\").replace('"', r"\"")


def _figures(costs: RunCosts) -> Sequence[CostFigure]:
    if not costs.figures:
        raise NoCosts(f"{costs.id} has no costs to write: {WITHOUT_COSTS}")
    return costs.figures


def _name(figure: CostFigure) -> str:
    subject = figure.subject
    doubt = " (emulated)" if figure.emulated else ""
    return printable(f"{subject.metric.name}: {subject.treatment} against {subject.baseline}{doubt}")
