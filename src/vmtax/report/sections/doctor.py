"""The output of `vmtax doctor`. Statuses are words: colour only helps to find them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from vmtax.core.checks import HOST, VM, WORST_FIRST, Area, Check, Diagnosis, Status
from vmtax.report.document import CheckOutcome, Document, Kind, Outcomes, Paragraph, Section, Span

TITLES: dict[Area, str] = {
    "measurable": "What can be measured",
    "tried": "What was tried",
    "need": "What it takes",
    "disturbance": "What disturbs",
}
KINDS: dict[Status, Kind] = {"ok": "good", "unknown": "plain", "disturbs": "doubt", "missing": "bad", "failed": "bad"}


def document(diagnosis: Diagnosis, words: str | None = None) -> Document:
    """The checks of each area, then the verdict. A remedy is shown at the first check that it helps.

    words: the verdict; None: that about a host
    """
    shown: set[str] = set()
    areas = ((area, title, diagnosis.of(area)) for area, title in TITLES.items())
    return Document(
        None,
        (
            Section("host", f"{diagnosis.host}: {diagnosis.about}", ()),
            *(Section(area, title, (_outcomes(area, checks, shown),)) for area, title, checks in areas if checks),
            Section("verdict", "", (Paragraph(words or verdict(diagnosis)),)),
        ),
    )


def verdict(diagnosis: Diagnosis) -> str:
    """The answer in one or two sentences."""
    option = "" if diagnosis.host == "local" else f" --host {diagnosis.host}"
    disturbing = sum(check.status == "disturbs" for check in diagnosis.of("disturbance"))
    bad = {check.name for check in diagnosis.bad}
    if not bad:
        unclear = any(check.name in (HOST, VM) and check.status == "unknown" for check in diagnosis.of("measurable"))
        text = "Host and VM can probably be measured" if unclear else "Host and VM can be measured"
        return f"{text}: vmtax run{option}{f'; {disturbing} things disturb' if disturbing > 1 else ''}"
    if HOST in bad:
        return "Host and VM cannot be measured: see the arrows above."
    if VM in bad:
        return "The host can be measured; what a VM costs cannot: see the arrows above."
    return "What was tried failed, so a run would fail too: see above."


def _outcomes(area: Area, checks: tuple[Check, ...], shown: set[str]) -> Outcomes:
    # Layers build on each other, and trials have an order of their own.
    ordered = _worst_first(checks) if area in ("need", "disturbance") else checks
    return Outcomes(tuple(_outcome(check, shown) for check in ordered))


def _outcome(check: Check, shown: set[str]) -> CheckOutcome:
    remedies = tuple(line for line in dict.fromkeys(check.remedy.splitlines()) if line not in shown)
    shown.update(remedies)
    return CheckOutcome(Span(check.status, KINDS[check.status]), check.name, check.text, remedies)


def _worst_first(checks: tuple[Check, ...]) -> Iterable[Check]:
    """Tools that are present share the last line."""
    tools = [check for check in checks if check.status == "ok" and check.text == "found"]
    others = sorted((one for one in checks if one not in tools), key=lambda check: WORST_FIRST.index(check.status))
    return [*others, *_together(tools)]


def _together(tools: list[Check]) -> Iterator[Check]:
    if tools:
        yield Check("need", "tools", "ok", ", ".join(check.name for check in tools))
