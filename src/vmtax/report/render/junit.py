"""A comparison of sessions as JUnit XML: a test case for each primary figure.

What is undecided is *skipped*: an error would be shown red, as if the change were to blame, and a pass green, as if
it were shown to be harmless. Who wants to stop there has the exit code.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from vmtax.analysis.sessions import Change, Line
from vmtax.core.units import printable
from vmtax.report.wording import change as words


def render_junit(change: Change) -> str:
    """One test suite, with what differs about the machines as its properties."""
    lines = [line for line in change.lines if line.primary]
    states = [_state(line) for line in lines]
    counts = {
        "tests": str(len(lines)),
        "failures": str(states.count("failed")),
        "errors": "0",
        "skipped": str(states.count("undecided")),
    }
    root = ET.Element("testsuites", counts)
    suite = ET.SubElement(root, "testsuite", {"name": "vmtax compare", **counts})
    properties = ET.SubElement(suite, "properties")
    named = [*words.sides(change), *((f"{f.path} {f.name}", f"{f.before} → {f.after}") for f in change.facts)]
    for name, value in named:
        ET.SubElement(properties, "property", {"name": printable(name), "value": printable(value)})
    for line, state in zip(lines, states, strict=True):
        _case(suite, line, state, change)
    for warning in change.warnings:
        ET.SubElement(suite, "system-err").text = printable(warning)
    ET.indent(root)
    return f'<?xml version="1.0" encoding="UTF-8"?>\n{ET.tostring(root, encoding="unicode")}\n'


def _state(line: Line) -> str:
    """What was asked for decides; where nothing was, what is shown to be worse fails."""
    return line.gate or {"worse": "failed", "undecided": "undecided"}.get(line.verdict, "passed")


def _case(suite: ET.Element, line: Line, state: str, change: Change) -> None:
    case = ET.SubElement(
        suite, "testcase", {"classname": printable(line.metric.name), "name": printable(line.treatment)}
    )
    message = printable(f"{words.verdict(line, change)}: {words.amount(line)}, sessions {words.sessions(line)}")
    if state != "passed":
        outcome = ET.SubElement(case, "failure" if state == "failed" else "skipped", {"message": message})
        outcome.text = printable(line.why) if line.why else None
    ET.SubElement(case, "system-out").text = message
