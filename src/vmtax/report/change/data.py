"""A comparison of sessions as JSON; report/answers/change.py says what each key is."""

from __future__ import annotations

from dataclasses import asdict

from vmtax.analysis.sessions import Change, Line
from vmtax.core.records import Json


def change_data(change: Change) -> Json:
    return {
        "before": list(change.before),
        "after": list(change.after),
        "hosts": list(change.hosts),
        "facts": [asdict(fact) for fact in change.facts],
        "emulated": list(change.emulated),
        "same_within": change.same_within,
        "fail_if_worse": change.limit,
        "gate": change.gate,
        "lines": [_line(line) for line in change.lines],
        "warnings": list(change.warnings),
    }


def _line(line: Line) -> Json:
    estimate, low, high = line.cost
    return {
        "metric": line.metric.name,
        "unit": line.metric.unit,
        "better": line.metric.better,
        "treatment": line.treatment,
        "primary": line.primary,
        "ratio": line.ratio,
        "low": line.low,
        "high": line.high,
        "cost": {"estimate": estimate, "low": low, "high": high},
        "sessions": list(line.sessions),
        "method": line.method,
        "verdict": line.verdict,
        "gate": line.gate,
        "emulated": line.emulated,
        "why": line.why,
    }
