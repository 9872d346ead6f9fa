"""Whether a run can recommend a disk: light, for most runs cannot. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmtax.analysis.analysis import Analysis

if TYPE_CHECKING:
    from vmtax.report.document import Section
    from vmtax.report.sections.recommendation import Recommendation


def recommendation_if_known(analysis: Analysis) -> Recommendation | None:
    """The recommendation of a run that looked at what its disks can do. It takes 0.1 s to load: for no other run."""
    if not analysis.disk_features:
        return None
    from vmtax.report.sections.recommendation import recommendation

    return recommendation(analysis)


def sections(analysis: Analysis) -> tuple[Section, ...]:
    """The recommendation and what each choice gives up; none of a run that cannot recommend anything."""
    found = recommendation_if_known(analysis)
    if found is None:
        return ()
    from vmtax.report.sections import recommendation

    return recommendation.sections(found)
