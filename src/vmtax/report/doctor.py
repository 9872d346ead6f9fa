"""What `vmtax doctor` prints. Statuses are words: colour only helps to find them."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator

from rich.text import Text

from vmtax.core.checks import HOST, VM, WORST_FIRST, Area, Check, Diagnosis
from vmtax.core.units import printable

TITLES: dict[Area, str] = {
    "measurable": "What can be measured",
    "tried": "What was tried",
    "need": "What it takes",
    "disturbance": "What disturbs",
}
STYLES = {"ok": "green", "unknown": "cyan", "disturbs": "yellow", "missing": "red", "failed": "red"}
ARROW, NAME, TEXT = 4, 11, 27  # columns where these begin
NARROWEST = 20  # of the text, whatever the terminal


def render(diagnosis: Diagnosis, width: int) -> Text:
    """All of it for a terminal of that width. A remedy is told once, and never broken, so that it can be copied."""
    shown = Text()
    _paragraph(shown, printable(f"{diagnosis.host}: {diagnosis.about}"), 0, width, style="bold")
    told: set[str] = set()
    for area, title in TITLES.items():
        checks = diagnosis.of(area)
        if not checks:
            continue
        shown.append(f"\n{title}\n", style="bold")
        # Layers build on each other, and what was tried has its order.
        for check in _worst_first(checks) if area in ("need", "disturbance") else checks:
            _check(shown, check, width, told)
    shown.append("\n")
    _paragraph(shown, verdict(diagnosis), 0, width)
    return shown


def verdict(diagnosis: Diagnosis) -> str:
    """The answer in one or two sentences."""
    option = "" if diagnosis.host == "local" else f" --host {diagnosis.host}"
    disturbing = sum(check.status == "disturbs" for check in diagnosis.of("disturbance"))
    bad = {check.name for check in diagnosis.bad}
    if not bad:
        unclear = any(check.name in (HOST, VM) and check.status == "unknown" for check in diagnosis.of("measurable"))
        text = "Host and VM can probably be measured" if unclear else "Host and VM can be measured"
        return f"{text}: vmtax run{printable(option)}{f'; {disturbing} things disturb' if disturbing > 1 else ''}"
    if HOST in bad:
        return "Host and VM cannot be measured: see the arrows above."
    if VM in bad:
        return "The host can be measured; what a VM costs cannot: see the arrows above."
    return "What was tried failed, so a run would fail too: see above."


def _worst_first(checks: tuple[Check, ...]) -> Iterator[Check]:
    """Tools that are there share the last line."""
    tools = [check for check in checks if check.status == "ok" and check.text == "found"]
    others = [check for check in checks if check not in tools]
    yield from sorted(others, key=lambda check: WORST_FIRST.index(check.status))
    if tools:
        yield Check("need", "tools", "ok", ", ".join(check.name for check in tools))


def _check(shown: Text, check: Check, width: int, told: set[str]) -> None:
    shown.append(f"  {check.status:<{NAME - 2}}", style=STYLES[check.status])
    shown.append(f"{printable(check.name):<{TEXT - NAME - 1}} ")
    _paragraph(shown, printable(check.text), TEXT, width)
    for line in check.remedy.splitlines():
        if line not in told:
            told.add(line)
            shown.append(f"{'':>{ARROW}}→ {printable(line)}\n", style="bold")


def _paragraph(shown: Text, text: str, column: int, width: int, style: str = "") -> None:
    """Wrapped from `column` on, where the line stands already."""
    lines = textwrap.wrap(text, max(NARROWEST, width - column), break_on_hyphens=False) or [""]
    shown.append(f"\n{'':>{column}}".join(lines) + "\n", style=style)
