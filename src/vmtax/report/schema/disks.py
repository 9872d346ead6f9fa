"""What an answer says of disks: scores, what each gives up, the advice."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from vmtax.report.schema.comparison import Overhead, Ranking
from vmtax.report.schema.part import Part


class Yardstick(Part):
    """What a part of a score is measured by."""

    treatment: str = Field(description="its name")
    host: bool = Field(description="bare metal; else the first treatment that has the numbers")
    same_round: int = Field(description="rounds in which it has its own number")
    other_rounds: int = Field(description="rounds in which it has none, and the median of its others serves")


class ScorePart(Part):
    """One metric of a score."""

    metric: str = Field(description="its name")
    weight: float = Field(description="above 0; its share of the sum counts")
    yardstick: Yardstick | None = Field(description="null: taken as it is, the article's factor scales to it")


class ScoreValue(Part):
    """One treatment's score."""

    treatment: str = Field(description="its name; of a host too, where it has all parts")
    value: float = Field(description="median over rounds, in the score's unit")
    emulated: bool = Field(description="a boot of it, or its host, ran on an emulated CPU")


class OtherWinner(Part):
    """Who wins by other weights."""

    treatment: str = Field(description="its name")
    draws_won: float = Field(description="share of the drawn sets of weights, 0 to 1; 0: only a corner")


class Stability(Part):
    """Whether the winner wins also by other weights."""

    winner: str = Field(description="name of the treatment that stands first")
    corners: int = Field(description="sets with every weight halved or doubled; 256 drawn of them where they are more")
    corners_won: float = Field(description="share of them in which it stays first, 0 to 1")
    draws: int = Field(description="sets drawn at random around the weights, with a fixed seed")
    draws_won: float = Field(description="share of them in which it stays first")
    draws_near: float = Field(description="share in which it is first or within same_within of the first")
    behind: float = Field(description="the most that it is behind the first, over all sets; a fraction")
    others: list[OtherWinner] = Field(description="who wins otherwise, most often first")
    emulated: bool = Field(description="the winner is")


class Score(Part):
    """A figure for a whole disk: the article's, its geometric sister, or a mix's; of one layer's treatments."""

    ranking: Ranking = Field(description="of score.read, score.both.geometric, score.database, ...; higher is better")
    unit: str = Field(description="B/s; 1 for a mix")
    mean: Literal["arithmetic", "geometric"] = Field(description="of the parts, weighted")
    parts: list[ScorePart] = Field(description="what it is made of")
    values: list[ScoreValue] = Field(description="the scores themselves")
    left_out: list[str] = Field(description="metrics of a mix that were not measured in this layer")
    untold: list[str] = Field(description="its percentiles that some boot had too few operations for: left out as well")
    measured: float = Field(description="share of the mix's weight that is in the score, 0 to 1")
    unranked: list[str] = Field(description="treatments that have all parts in fewer than half of the rounds")
    stability: Stability | None = Field(description="null: one part only, reads or writes alone, or no round has all")


class Scores(Part):
    """Storage scores, of every layer with three treatments or more."""

    found: list[Score] = Field(description="layer by layer, the article's first; a mix where --for or --weights asks")
    missing: list[str] = Field(description="why a score could not be made, for people")


class Within(Part):
    """Two figures of the same disk in the same boot, one over the other."""

    upper: str = Field(description="metric of the figure above the line")
    lower: str = Field(description="metric of the figure below it")
    treatment: str = Field(description="its name")
    ratio: float = Field(description="upper / lower, Hodges-Lehmann over rounds")
    low: float | None = Field(description="lower end of its interval; null: too few rounds")
    high: float | None = Field(description="upper end of its interval")
    rounds: int = Field(description="in which the boot has both")
    first: str | None = Field(description="treatment that it is held against; null: it is the first of its layer")
    less: Overhead | None = Field(description="how much smaller than that one's, a fraction, in the same rounds")
    emulated: bool = Field(description="either treatment is")


class Against(Part):
    """A choice against the fastest, as fractions; above 0 is worse. null: not measured, or too few rounds."""

    slower: float | None = Field(description="of the rate lost")
    slower_low: float | None = Field(description="lower end of its interval")
    slower_high: float | None = Field(description="upper end of its interval")
    dearer: float | None = Field(description="host CPU time more, for one operation")
    dearer_low: float | None = Field(description="lower end of its interval")
    dearer_high: float | None = Field(description="upper end of its interval")


class DiskChoice(Part):
    """A way to keep a disk that meets what is needed."""

    treatment: str = Field(description="its name")
    features: list[str] = Field(description="that it is shown, or documented, to have")
    unusual: list[str] = Field(description="its settings that are not the default")
    best: Against = Field(description="against the fastest")
    in_pareto_set: bool = Field(description="of speed, host CPU and features")
    tie: bool = Field(description="its interval against the fastest lies within same_within")
    emulated: bool = Field(description="a boot of it, or its host, ran on an emulated CPU")


class Refused(Part):
    """A way to keep a disk that was not considered."""

    treatment: str = Field(description="its name")
    why: str = Field(description="for people")


class DiskForms(Part):
    """The choice in every form. Its path, its size and words in capitals are to be put in."""

    path: str = Field(description="of the disk")
    size: str = Field(description="of the disk, as the commands write it")
    backing: list[list[str]] = Field(description="commands that make what the disk is kept in, in order")
    qemu: list[str] = Field(description="QEMU's arguments")
    machine: str = Field(description="QEMU's -machine that has the bus")
    libvirt: str = Field(description="children of <domain>; empty where libvirt cannot say it")
    libvirt_notes: list[str] = Field(description="what it cannot say")
    proxmox: list[list[str]] = Field(description="commands; empty where Proxmox VE cannot say it")
    proxmox_notes: list[str] = Field(description="what it cannot say")


class FeatureFound(Part):
    """What one way to keep a disk can do, or not."""

    name: str = Field(description="durable, savevm, snapshots, file, thin, pause-on-full or migration")
    state: Literal["yes", "no", "not tried"] = Field(description="the answer")
    how: str = Field(description="what was done to find out, or documented")
    words: str = Field(description="why; of who refused, where somebody did")


class GivenUp(Part):
    """One row of the table of what each choice gives up."""

    treatment: str = Field(description="its name")
    features: list[FeatureFound] = Field(description="each once")


class Advice(Part):
    """What to choose, and why: of the guests of the outermost layer."""

    layer: str = Field(description="of all choices")
    by: str = Field(description="what speed is, for people")
    metric: str | None = Field(description="its name; null: the mean of the primary disk metrics")
    needs: list[str] = Field(description="features that were needed")
    accept_loss: bool = Field(description="what loses flushed data was considered")
    choice: DiskChoice | None = Field(description="null: none meets what is needed; the notes say so")
    reasons: list[str] = Field(description="for the choice, for people")
    runner_up: DiskChoice | None = Field(description="null: there is no other")
    runner_up_words: str = Field(description="what it costs against the choice, and what it can do, for people")
    options: list[DiskChoice] = Field(description="all that meet what is needed, the fastest first")
    refused: list[Refused] = Field(description="those that were not considered")
    notes: list[str] = Field(description="doubts, for people")
    same_within: float = Field(description="fraction: what does not matter")
    export: DiskForms | None = Field(description="the choice, ready to be applied")
    apply: str | None = Field(description="the command that prints the same for people")
    give_ups: list[GivenUp] = Field(description="of every treatment that was looked at")
