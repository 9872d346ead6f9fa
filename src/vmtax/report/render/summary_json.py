"""The summary of a run in the answer to `--json`; report/schema/summary.py says what each key is."""

from __future__ import annotations

from vmtax.analysis.analysis import Analysis
from vmtax.analysis.summary import Contrast, Figure, Place, summary
from vmtax.core.records import VERDICT_CODES, Json


def summary_data(analysis: Analysis) -> Json:
    found = summary(analysis)
    places = {place.treatment: place for place in found.places}
    return {
        "run": analysis.experiment.id,
        "emulated": bool(analysis.emulated),
        "figures": [_figure(figure, places) for figure in found.figures],
    }


def _figure(figure: Figure, places: dict[str, Place]) -> Json:
    return {
        "metric": figure.metric.name,
        "label": figure.label,
        "unit": figure.metric.unit,
        "better": figure.metric.better,
        "primary": figure.primary,
        "noise_floor": figure.floor,
        "medians": [
            {
                "treatment": place.treatment,
                "layer": place.layer,
                "side": place.side,
                "median": median,
                "emulated": place.emulated,
            }
            for place, median in zip(places.values(), figure.medians, strict=True)
            if median is not None
        ],
        "costs": [_cost(contrast, places) for contrast in figure.contrasts if contrast is not None],
    }


def _cost(contrast: Contrast, places: dict[str, Place]) -> Json:
    return {
        "treatment": contrast.treatment,
        "layer": places[contrast.treatment].layer,
        "baseline": contrast.baseline,
        "against": places[contrast.baseline].layer,
        "ratio": contrast.ratio,
        "low": contrast.low,
        "high": contrast.high,
        "rounds": contrast.rounds,
        "verdict_code": VERDICT_CODES[contrast.verdict],
        "same": contrast.same,
        "emulated": contrast.emulated,
        "notice_codes": list(contrast.notes),
    }
