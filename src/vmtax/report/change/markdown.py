"""A comparison of sessions as a comment of a pull request."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from vmtax.analysis.sessions import Change, Line
from vmtax.report.change import words
from vmtax.report.render.markdown_text import row, text
from vmtax.report.view import special_cost


def render_markdown(change: Change) -> str:
    """The whole comment; exploratory figures are folded away."""
    primary = [line for line in change.lines if line.primary]
    others = [line for line in change.lines if not line.primary]
    parts = (
        _head(change),
        _facts(change),
        _figures(primary, change),
        _exploratory(others, change),
        _listed("Undecided", words.reasons(primary or others)),
        _listed("Warnings", change.warnings),
    )
    return "\n".join(line for part in parts for line in part).rstrip("\n") + "\n"


def _head(change: Change) -> Iterator[str]:
    yield from (f"### vmtax compare: {text(words.headline(change))}", "")
    for name, side in words.sides(change):
        yield f"- {name}: {text(side)}"
    yield ""
    banner = words.banner(change)
    if banner:
        yield from (f"> **Emulated.** {text(banner)}", "")


def _facts(change: Change) -> Iterator[str]:
    if not change.facts:
        yield from ("No fact of the machines that lasts differs.", "")
        return
    yield from (row("machine", "what differs", "before", "after"), row("---", "---", "---", "---"))
    for fact in change.facts:
        yield row(*map(text, (fact.path, fact.name, fact.before, fact.after)))
    yield ""


def _figures(lines: Sequence[Line], change: Change) -> Iterator[str]:
    if not lines:
        return
    yield row("metric", "treatment", "cost of the change", "sessions", "verdict")
    yield row("---", "---", "---:", "---:", "---")
    for line in lines:
        kind = special_cost(line.metric)
        what = f"{text(line.metric.name)}{f' ({kind})' if kind else ''}"
        verdict = text(words.verdict(line, change))
        told = f"**{verdict}**" if line.verdict in ("worse", "better") else verdict
        yield row(what, text(line.treatment), words.amount(line), words.sessions(line), told)
    yield from ("", words.READING, "")


def _exploratory(lines: Sequence[Line], change: Change) -> Iterator[str]:
    if lines:
        yield from (f"<details><summary>{len(lines)} exploratory figures</summary>", "", words.EXPLORATORY, "")
        yield from _figures(lines, change)
        yield from ("</details>", "")


def _listed(title: str, lines: Sequence[str]) -> Iterator[str]:
    if lines:
        yield from (f"**{title}**", "", *(f"- {text(line)}" for line in lines), "")
