"""A comparison of sessions as JUnit XML: one test case per primary figure.

An undecided figure is *skipped*: an error would be shown in red, as if the change were to blame, and a pass in green,
as if it were shown to be harmless. The exit code is available for stopping there.
"""

from __future__ import annotations

from xml.etree import ElementTree as ET

from vmtax.analysis.sessions import Change, MetricChange
from vmtax.core.units import printable
from vmtax.report.wording import change as words


def render_junit(change: Change) -> str:
    """One test suite; its properties are the differences of the machines."""
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


def _state(line: MetricChange) -> str:
    """The limit that was asked for decides; without one, a figure that is shown to be worse fails."""
    return line.gate or {"worse": "failed", "undecided": "undecided"}.get(line.verdict, "passed")


def _case(suite: ET.Element, line: MetricChange, state: str, change: Change) -> None:
    case = ET.SubElement(
        suite, "testcase", {"classname": printable(line.metric.name), "name": printable(line.treatment)}
    )
    message = printable(f"{words.verdict(line, change)}: {words.amount(line)}, sessions {words.sessions(line)}")
    if state != "passed":
        outcome = ET.SubElement(case, "failure" if state == "failed" else "skipped", {"message": message})
        outcome.text = printable(line.why) if line.why else None
    ET.SubElement(case, "system-out").text = message
