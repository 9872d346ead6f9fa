"""A history as a file, by the names of the formats."""

from __future__ import annotations

from vmtax.analysis.many.history import HostHistory
from vmtax.report.answers.envelope import envelope
from vmtax.report.answers.history import HISTORY
from vmtax.report.render.document_files import writers
from vmtax.report.render.wide_csv import wide_csv
from vmtax.report.sections.history import document

terminal, html, markdown = writers(document)


def json(history: HostHistory, full: bool) -> str:
    return f"{envelope('history', HISTORY.made(history))}\n"


def csv(history: HostHistory, full: bool) -> str:
    return wide_csv(history.costs)
