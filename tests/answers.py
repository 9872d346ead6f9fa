"""Answers of `--json` as a program reads them."""

from __future__ import annotations

import json

from vmtax.analysis.analysis import Analysis
from vmtax.core.records import Json
from vmtax.report.answers.envelope import envelope
from vmtax.report.answers.run import experiment


def as_read(data: object) -> Json:
    """Any record of an answer."""
    read: Json = json.loads(envelope("any", data))["data"]
    return read


def experiment_data(analysis: Analysis) -> Json:
    """A run."""
    return as_read(experiment(analysis))
