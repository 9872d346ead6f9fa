"""Changes over a fleet as a file, by the names of the formats."""

from __future__ import annotations

from vmtax.analysis.many.fleet_change import FleetChange
from vmtax.report.answers.envelope import envelope
from vmtax.report.answers.fleet_change import FLEET_CHANGE
from vmtax.report.render.document_files import writers
from vmtax.report.sections.fleet_change import document

terminal, html, markdown = writers(document)


def json(change: FleetChange, full: bool) -> str:
    return f"{envelope('fleet-change', FLEET_CHANGE.made(change))}\n"
