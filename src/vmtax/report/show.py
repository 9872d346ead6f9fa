"""The output of `vmtax show`, and of the end of `vmtax run`."""

from __future__ import annotations

from dataclasses import replace

from rich.console import Group, RenderableType
from rich.text import Text

from vmtax.analysis.analysis import Analysis
from vmtax.report.document import Detail, Document, with_heads
from vmtax.report.render.screen import FirstScreen
from vmtax.report.render.terminal import section, whole
from vmtax.report.sections import at_once, durability, idle, prices, requirements, scores, tiles


def evidence(analysis: Analysis, feature: str) -> RenderableType:
    """The evidence, for each choice, of whether it has a feature of `--needs`. Raises BadInput."""
    from vmtax.report.sections.evidence import sections

    return whole(Document(None, sections(analysis, feature)), Detail.FULL)


def render(analysis: Analysis, full: bool = False) -> RenderableType:
    """One screen that answers what the run was made for; with `full`, everything."""
    if full:
        from vmtax.report.contents import document  # here, because the first screen needs few of the sections

        return whole(document(analysis, Detail.FULL), Detail.FULL)
    asked = scores.section(scores.storage(analysis)) if analysis.profile else None
    pairs = requirements.sections(analysis)
    advised = (each for pair in pairs for each in pair if any(block.detail is Detail.BRIEF for block in each.blocks))
    first = (*advised, *((asked,) if asked else ()))
    others = (each.section(analysis) for each in (prices, idle, tiles, at_once, durability))
    below = tuple(replace(one, blocks=with_heads(one.blocks)) for one in others if one is not None)
    more = [tuple(Group(*section(one, Detail.BRIEF), Text()) for one in some) for some in (first, below)]
    return FirstScreen(analysis, *more)
