"""Reads the report's own drawings: what is drawn where, and what it says."""

from __future__ import annotations

from dataclasses import dataclass
from xml.etree import ElementTree

from vmtax.report.picture import Panel, Picture


@dataclass(frozen=True, slots=True)
class DrawnDot:
    """A dot as a drawing has it."""

    x: float  # a share of the width
    kind: str  # "circle", "circle-open"
    bar: tuple[float, float] | None  # its interval
    tip: str  # where it is pointed at


def root(picture: Picture | Panel) -> ElementTree.Element:
    """The drawing; an error where it is not well formed."""
    return ElementTree.fromstring(picture.drawing or "")


def share(text: str) -> float:
    return float(text.removesuffix("%")) / 100


def dots(picture: Picture) -> list[DrawnDot]:
    """In the order in which they are drawn."""
    found = []
    for group in root(picture).iter("g"):
        mark = group.find("use")
        if mark is None:
            continue
        bar = group.find("line")
        ends = None if bar is None else (share(bar.attrib["x1"]), share(bar.attrib["x2"]))
        title = group.findtext("title") or ""
        found.append(DrawnDot(share(mark.attrib["x"]), mark.attrib["href"].removeprefix("#mark-"), ends, title))
    return found


def of_class(picture: Picture | Panel, name: str) -> list[ElementTree.Element]:
    """The elements that have this class."""
    return [one for one in root(picture).iter() if name in one.attrib.get("class", "").split()]


def texts(picture: Picture | Panel) -> list[str]:
    return [text.text or "" for text in root(picture).iter("text")]
