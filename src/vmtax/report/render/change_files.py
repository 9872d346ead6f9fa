"""A comparison of two sessions as a file, by the names of the formats."""

from __future__ import annotations

from vmtax.analysis.sessions import Change
from vmtax.report.answers.change import CHANGE
from vmtax.report.answers.envelope import envelope
from vmtax.report.document import Detail
from vmtax.report.render.document_files import plain
from vmtax.report.render.junit import render_junit
from vmtax.report.render.markdown import whole
from vmtax.report.sections.change import document


def terminal(change: Change, full: bool) -> str:
    return plain(document(change, Detail.FULL if full else Detail.BRIEF), full)


def markdown(change: Change, full: bool) -> str:
    return whole(document(change, Detail.FILE), comment=True)


def junit(change: Change, full: bool) -> str:
    return render_junit(change)


def json(change: Change, full: bool) -> str:
    return f"{envelope('comparison', CHANGE.made(change))}\n"
