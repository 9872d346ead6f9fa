"""What an experiment looks like in the answer to `--json`."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import asdict
from typing import TYPE_CHECKING

from vmtax.analysis.comparisons import overhead
from vmtax.analysis.emulation import emulated_treatments
from vmtax.analysis.gains import Within, within
from vmtax.analysis.rankings import FactorEffect, Ranking, effects, rankings
from vmtax.analysis.requirements import Wish
from vmtax.analysis.scores import Score, scores
from vmtax.core.records import Comparison, Experiment, Json, Trial
from vmtax.design.stopping import Decision
from vmtax.report.sections import iterations
from vmtax.report.sections.noise import noise_floor
from vmtax.report.sections.rankings import decisions
from vmtax.report.sections.requirements import advised_where_known

if TYPE_CHECKING:
    from vmtax.analysis.weight_profiles import Mix

SIDE_FIGURES = (
    *("mean_ratio", "p95_ratio", "baseline_stalls", "treatment_stalls", "stalls_p"),
    *("carry_over", "carry_over_p"),
)


def experiment_data(
    experiment: Experiment, comparisons: Sequence[Comparison], mix: Mix | None = None, wish: Wish | None = None
) -> Json:
    """An experiment without the tools' raw output. Base units; seconds since the epoch; treatments by name.

    mix: what the storage is also ranked by; wish: what is asked of a disk
    """
    emulated = emulated_treatments(experiment)
    scored = scores(experiment, mix)
    told = advised_where_known(experiment, mix, wish, scored)
    return {
        "id": experiment.id,
        "name": experiment.name,
        "host": experiment.host,
        "command": experiment.command,
        "created": experiment.created,
        "finished": experiment.finished,
        "state": experiment.state,
        "ended": experiment.ended,
        "plan": experiment.plan,
        "notes": list(experiment.notes),
        "facts": experiment.facts,
        "treatments": [
            {**asdict(t), "levels": dict(t.levels), "emulated": t.name in emulated} for t in experiment.treatments
        ],
        "boots": [asdict(boot) for boot in experiment.boots],
        "measurements": [m for trial in experiment.trials for m in _measurements(trial, trial.treatment in emulated)],
        "failures": [_failure(trial) for trial in experiment.trials if trial.status != "ok"],
        "comparisons": [_comparison(comparison, emulated) for comparison in comparisons],
        **iterations.to_json(experiment),
        "noise_floor": [
            _comparison(floor.effect.comparison, emulated) for floor in noise_floor(experiment, comparisons)
        ],
        "rankings": [_ranking(ranking, emulated) for ranking in rankings(experiment)],
        "scores": {"found": [_score(score, emulated) for score in scored.found], "missing": list(scored.missing)},
        "within": [_within(found, emulated) for found in within(experiment)],
        "advice": told and told.to_json(),
        "effects": [_factor_effect(effect, experiment, emulated) for effect in effects(experiment)],
        "decisions": [_decision(decision, emulated) for decision in decisions(experiment, comparisons)],
        "ledger": [],
    }


def _measurements(trial: Trial, emulated: bool) -> Iterator[Json]:
    """One object for each number of a trial that may be compared."""
    if trial.status != "ok":
        return
    for measurement in trial.measurements:
        yield {
            "metric": measurement.metric.name,
            "unit": measurement.metric.unit,
            "better": measurement.metric.better,
            "value": measurement.value,
            "emulated": emulated,
            **_place(trial),
        }


def _failure(trial: Trial) -> Json:
    return {"status": trial.status, "error": trial.error, **_place(trial)}


def _place(trial: Trial) -> Json:
    return {
        "treatment": trial.treatment,
        "machine": trial.machine,
        "workload": trial.workload,
        "case": trial.case,
        "round": trial.round,
        "position": trial.position,
        "iteration": trial.iteration,
        "started": trial.started,
        "wall_seconds": trial.wall_seconds,
        "warnings": list(trial.warnings),
        "disturbance": asdict(trial.disturbance) if trial.disturbance else None,
        "readings": trial.readings,
    }


def _comparison(comparison: Comparison, emulated: frozenset[str]) -> Json:
    estimate, low, high = overhead(comparison)
    return {
        "metric": comparison.metric.name,
        "unit": comparison.metric.unit,
        "better": comparison.metric.better,
        "baseline": comparison.baseline,
        "treatment": comparison.treatment,
        "ratio": comparison.ratio,
        "low": comparison.low,
        "high": comparison.high,
        "overhead": {"estimate": estimate, "low": low, "high": high},
        "rounds": comparison.rounds,
        "verdict": comparison.verdict,
        **{name: getattr(comparison, name) for name in SIDE_FIGURES},
        "emulated": bool(emulated & {comparison.baseline, comparison.treatment}),
        "warnings": list(comparison.warnings),
    }


def _ranking(ranking: Ranking, emulated: frozenset[str]) -> Json:
    standings = [{**asdict(entry), "emulated": entry.treatment in emulated} for entry in ranking.standings]
    return {**asdict(ranking), "metric": ranking.metric.name, "standings": standings}


def _score(score: Score, emulated: frozenset[str]) -> Json:
    stability = score.stability and {
        **asdict(score.stability),
        "others": [{"treatment": name, "draws_won": share} for name, share in score.stability.others],
        "emulated": score.stability.winner in emulated,
    }
    return {
        "ranking": _ranking(score.ranking, emulated),
        "unit": score.metric.unit,
        "mean": score.mean,
        "parts": [
            {"metric": part.metric, "weight": part.weight, "yardstick": part.yardstick and asdict(part.yardstick)}
            for part in score.parts
        ],
        "values": [
            {"treatment": name, "value": value, "emulated": name in emulated} for name, value in score.values.items()
        ],
        "left_out": list(score.left_out),
        "untold": list(score.untold),
        "measured": score.measured,
        "unranked": list(score.unranked),
        "stability": stability,
    }


def _within(found: Within, emulated: frozenset[str]) -> Json:
    return {
        "upper": found.pair.upper,
        "lower": found.pair.lower,
        "treatment": found.treatment,
        "ratio": found.ratio,
        "low": found.low,
        "high": found.high,
        "rounds": found.rounds,
        "first": found.first,
        "less": found.less and dict(zip(("estimate", "low", "high"), found.less, strict=True)),
        "emulated": bool(emulated & {found.treatment, found.first}),
    }


def _factor_effect(effect: FactorEffect, experiment: Experiment, emulated: frozenset[str]) -> Json:
    names = {treatment.name for treatment in experiment.treatments if treatment.layer == effect.layer}
    return {**asdict(effect), "metric": effect.metric.name, "emulated": bool(emulated & names)}


def _decision(decision: Decision, emulated: frozenset[str]) -> Json:
    contrast = decision.comparison
    return {
        "metric": contrast.metric.name,
        "baseline": contrast.baseline,
        "treatment": contrast.treatment,
        "worse": decision.answer,
        "emulated": bool(emulated & {contrast.baseline, contrast.treatment}),
    }
