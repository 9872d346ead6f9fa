"""Whether a run can recommend a disk: light, for most runs cannot. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vmtax.analysis.analysis import Analysis

if TYPE_CHECKING:
    from vmtax.report.sections.recommendation import Recommendation

TITLE = "Recommendation"
GIVE_UPS = "What each choice gives up"
READING = "What is durable is as documented; all else was tried on this host. “?” was not tried, and counts as missing."


def recommendation_if_known(analysis: Analysis) -> Recommendation | None:
    """The recommendation of a run that looked at what its disks can do. It takes 0.1 s to load: for no other run."""
    if not analysis.disk_features:
        return None
    from vmtax.report.sections.recommendation import recommendation

    return recommendation(analysis)
