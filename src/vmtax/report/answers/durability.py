"""The part of an answer about durability: which data survived a power cut, as trials show."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

from vmtax.analysis import durability
from vmtax.analysis.losses import CONFIDENCE, End, Writer
from vmtax.report.answers.shape import EMULATED, AnswerKey, Shape
from vmtax.workload.durability import NEEDED_STATES


def _without_disk(what: str) -> AnswerKey:
    meaning = f"number of `{what}` in which one of the host's disks was gone; null: no disk was ever gone"
    return AnswerKey(int | None, meaning, lambda end, _: end.without_disk and getattr(end.without_disk, what))


WRITER = Shape(Writer, "name states lost torn", name="DurabilityWriter")
END = Shape(
    End,
    "end states=count.states lost=count.lost low=count.low high=count.high file_system_damaged image_damaged writers"
    " control states_without_disk lost_without_disk",
    {f"{what}_without_disk": _without_disk(what) for what in ("states", "lost")},
    name="DurabilityEnd",
    parts=[WRITER],
)
EVIDENCE = Shape(
    durability.Evidence,
    "treatment state reason documented disagrees ends failed emulated",
    {
        "state": AnswerKey(Literal["yes", "no", "not shown"], "whether the trials show that it is durable"),
        "disagrees": AnswerKey(
            bool, "whether the trials contradict the documentation", lambda one, _: bool(one.disagreement)
        ),
        "emulated": EMULATED,
    },
    name="DurabilityEvidence",
    parts=[END],
)
DURABILITY = Shape(
    durability.Survival,
    "evidence needed_states confidence proves=shows_losses proof blind disagreements",
    {
        "needed_states": AnswerKey(
            int,
            "number of states after a power cut, all without a loss, that show a configuration to be durable",
            lambda *_: NEEDED_STATES,
        ),
        "confidence": AnswerKey(float, "confidence level of the bounds, as a fraction", lambda *_: CONFIDENCE),
        "blind": AnswerKey(
            Sequence[str],
            "names of configurations whose trials prove nothing, because their own control lost nothing",
            lambda found, _: [one.treatment for one in found.blind],
        ),
    },
    name="Durability",
    parts=[EVIDENCE],
)
