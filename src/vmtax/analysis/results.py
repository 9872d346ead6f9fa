"""Results of an analysis as stored with its run, so that `show` computes nothing.

They are a cache: without them, or if they do not match, they are computed. The text begins with the versions of the
analysis and of the program; the store returns a text only for the records it was computed from.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from vmtax import __version__
from vmtax.analysis.gains import Gain
from vmtax.analysis.idle import IdleGuest
from vmtax.analysis.rankings import FactorEffect, Ranking
from vmtax.analysis.scores import Scores
from vmtax.core.records import Comparison, Experiment
from vmtax.design.topology import groups
from vmtax.workload import WORKLOADS

# Raise it if the same records yield other results; `tests/unit/test_results.py` fails until then.
VERSION = 12


@dataclass(frozen=True, slots=True)
class Results:
    """Results of one run, named after the properties of `Analysis`; scores are those without a profile."""

    comparisons: tuple[Comparison, ...]
    derived_comparisons: tuple[Comparison, ...]
    rankings: tuple[Ranking, ...]
    primary_rankings: tuple[Ranking, ...]
    factor_effects: tuple[FactorEffect, ...]
    scores: Scores
    gains: tuple[Gain, ...]
    idle_guests: tuple[IdleGuest, ...]


def written(results: Results) -> str:
    """As text, from which `read` makes equal results."""
    from pydantic import TypeAdapter

    # Not `dump_json`, which writes the NaN of a missing ratio as null, and null is no number.
    return f"{_head()}\n{json.dumps(TypeAdapter(Results).dump_python(results, mode='json'), separators=(',', ':'))}"


def read(text: str, run: Experiment) -> Results | None:
    """Read the text of `written` for this run; None if another version wrote it, or if it is not about this run."""
    from pydantic import TypeAdapter, ValidationError

    head, _, body = text.partition("\n")
    if head != _head():
        return None
    try:
        results = TypeAdapter(Results).validate_json(body)
    except ValidationError:
        return None
    return results if _are_of(run, results) else None


def _are_of(run: Experiment, results: Results) -> bool:
    """Whether they name only what the run has."""
    rankings = (*results.rankings, *results.primary_rankings, *(score.ranking for score in results.scores.found))
    treatments = {treatment.name for treatment in run.treatments}
    reported = {measurement.metric for trial in run.trials for measurement in trial.measurements}
    metrics = reported | {metric for kind in WORKLOADS.values() for metric in kind.derived_metrics(reported)}
    known = groups(run.treatments).keys()
    compared = (*results.comparisons, *results.derived_comparisons)
    effects, gains = results.factor_effects, results.gains
    named = {
        *(name for one in (*compared, *results.derived_comparisons) for name in (one.baseline, one.treatment)),
        *(name for one in rankings for standing in one.standings for name in (standing.treatment, *standing.beaten_by)),
        *(gain.treatment for gain in gains),
        *(name for one in results.idle_guests for name in (one.baseline or one.treatment, one.treatment)),
    }
    grouped = {*((one.layer, one.side, one.count) for some in (rankings, effects, gains) for one in some)}
    return (
        named <= treatments
        and grouped <= known
        and metrics.issuperset((*(one.metric for one in compared), *(one.metric for one in effects)))
    )


def _head() -> str:
    return f"vmtax {__version__} analysis {VERSION}"
