"""The answer of a calibration."""

from __future__ import annotations

from vmtax.analysis import calibration
from vmtax.report.answers.shape import AnswerKey, Shape

TARGET = Shape(calibration.PrecisionTarget, "half_width rounds seconds")
REACH = Shape(
    calibration.SelfComparison,
    "metric=metric.name cv half_width rounds targets between_sessions_sd",
    {
        "between_sessions_sd": AnswerKey(
            float | None,
            "standard deviation of the logarithm of the metric from one calibration to the next; null: there are too"
            " few calibrations",
            lambda reach, _: reach.between and reach.between.sd,
        )
    },
    parts=[TARGET],
)
CALIBRATION = Shape(
    calibration.Calibration,
    "run=experiment.id host=experiment.host emulated seconds_per_round sessions metrics",
    parts=[REACH],
)
