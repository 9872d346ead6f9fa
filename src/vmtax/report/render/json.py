"""What an experiment looks like in the answer to `--json`."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.comparisons import overhead
from vmtax.analysis.gains import Gain
from vmtax.analysis.notices import Cause
from vmtax.analysis.rankings import FactorEffect, Ranking
from vmtax.analysis.scores import Score
from vmtax.core.records import VERDICT_CODES, Comparison, Json, Trial
from vmtax.core.units import iso
from vmtax.design.stopping import Decision
from vmtax.report.render.summary_json import summary_data
from vmtax.report.sections import iterations
from vmtax.report.sections.noise import noise_floor
from vmtax.report.sections.requirements import recommendation_if_known
from vmtax.report.wording.figures import about

SIDE_FIGURES = (
    *("mean_ratio", "p95_ratio", "baseline_stalls", "treatment_stalls", "stalls_p"),
    *("carry_over", "carry_over_p"),
)


def experiment_data(analysis: Analysis) -> Json:
    """An experiment without the tools' raw output. Base units; seconds since the epoch; treatments by name."""
    experiment, emulated = analysis.experiment, analysis.emulated
    scored, advice = analysis.scores, recommendation_if_known(analysis)
    return {
        "id": experiment.id,
        "name": experiment.name,
        "host": experiment.host,
        "command": experiment.command,
        "created": experiment.created,
        "created_iso": iso(experiment.created),
        "finished": experiment.finished,
        "finished_iso": None if experiment.finished is None else iso(experiment.finished),
        "state": experiment.state,
        "ended": experiment.ended,
        "label": experiment.label,
        "seconds": experiment.took,
        "plan": experiment.plan,
        "notes": list(experiment.notes),
        "facts": experiment.facts,
        "treatments": [
            {**asdict(t), "levels": dict(t.levels), "emulated": t.name in emulated} for t in experiment.treatments
        ],
        "boots": [asdict(boot) for boot in experiment.boots],
        "measurements": [m for trial in experiment.trials for m in _measurements(trial, trial.treatment in emulated)],
        "failures": [_failure(trial) for trial in experiment.trials if trial.status != "ok"],
        "comparisons": [_comparison(comparison, emulated) for comparison in analysis.comparisons],
        **iterations.to_json(analysis),
        "noise_floor": [_comparison(floor.effect.comparison, emulated) for floor in noise_floor(analysis)],
        "rankings": [_ranking(ranking, emulated) for ranking in analysis.rankings],
        "scores": {"found": [_score(score, emulated) for score in scored.found], "missing": list(scored.missing)},
        "within": [_gain(gain, emulated) for gain in analysis.gains],
        "advice": advice and advice.to_json(),
        "effects": [_factor_effect(effect, analysis) for effect in analysis.factor_effects],
        "decisions": [_decision(decision, emulated) for decision in analysis.decisions],
        "ledger": [],
        "summary": summary_data(analysis),
        "notices": [_notice(cause, analysis) for cause in analysis.causes],
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
        "started_iso": iso(trial.started),
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
        "verdict_code": VERDICT_CODES[comparison.verdict],
        "notice_codes": list(dict.fromkeys(notice.code for notice in comparison.notices)),
    }


def _notice(cause: Cause, analysis: Analysis) -> Json:
    return {
        "code": cause.code,
        "cause": cause.text,
        "effect": cause.effect,
        "cure": cause.remedy,
        "about": about(cause, analysis),
        "treatments": list(cause.treatments),
        "metrics": list(cause.metrics),
        "rounds": list(cause.rounds),
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


def _gain(gain: Gain, emulated: frozenset[str]) -> Json:
    return {
        "upper": gain.pair.upper,
        "lower": gain.pair.lower,
        "treatment": gain.treatment,
        "ratio": gain.ratio,
        "low": gain.low,
        "high": gain.high,
        "rounds": gain.rounds,
        "first": gain.first,
        "less": gain.less and dict(zip(("estimate", "low", "high"), gain.less, strict=True)),
        "emulated": bool(emulated & {gain.treatment, gain.first}),
    }


def _factor_effect(effect: FactorEffect, analysis: Analysis) -> Json:
    return {**asdict(effect), "metric": effect.metric.name, "emulated": effect.layer in analysis.emulated_layers}


def _decision(decision: Decision, emulated: frozenset[str]) -> Json:
    contrast = decision.comparison
    return {
        "metric": contrast.metric.name,
        "baseline": contrast.baseline,
        "treatment": contrast.treatment,
        "worse": decision.answer,
        "emulated": bool(emulated & {contrast.baseline, contrast.treatment}),
    }
