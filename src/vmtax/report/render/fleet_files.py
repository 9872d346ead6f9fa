"""A fleet as a file, by the names of the formats."""

from __future__ import annotations

from vmtax.analysis.many.fleet import Fleet
from vmtax.report.answers.envelope import envelope
from vmtax.report.answers.fleet import FLEET
from vmtax.report.render.document_files import writers
from vmtax.report.render.exchange import textfile
from vmtax.report.render.wide_csv import wide_csv
from vmtax.report.sections.fleet import document

terminal, html, markdown = writers(document)


def json(fleet: Fleet, full: bool) -> str:
    return f"{envelope('fleet', FLEET.made(fleet))}\n"


def csv(fleet: Fleet, full: bool) -> str:
    return wide_csv(fleet.costs)


def prometheus(fleet: Fleet, full: bool) -> str:
    return textfile(fleet.costs)
