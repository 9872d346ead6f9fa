"""Pictures as a report has them: drawings with their texts. What draws them is in `figures`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Key:
    """One entry of a legend."""

    mark: str  # in MARKS, or "line"
    style: str  # class of the colour
    text: str
    dash: str = ""  # of a line


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing and its texts."""

    id: str
    title: str
    caption: str
    alternative: str  # text for readers who cannot see it
    legend: tuple[Key, ...]
    drawing: Markup


@dataclass(frozen=True, slots=True)
class Panel:
    """One picture of several."""

    options: tuple[int, ...]  # it is shown if these are chosen in the selects, from the first on
    title: str  # on paper it replaces the selects
    legends: Mapping[int | None, tuple[Key, ...]]  # option of the second select -> its legend; None: whatever is chosen
    drawing: Markup | None  # None: there is nothing to draw
    note: str = ""  # why there is nothing to draw


@dataclass(frozen=True, slots=True)
class PictureChoice:
    """Pictures of which the reader chooses one."""

    id: str
    title: str
    caption: str
    selects: tuple[tuple[str, tuple[str, ...]], ...]  # (label, options) of each select; the first ones are chosen first
    parts: tuple[Panel, ...]
