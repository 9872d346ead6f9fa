"""What every `--json` answer holds, kind by kind. Base units: seconds, bytes, bits, operations; times since the epoch.

docs/reference has it as a JSON Schema, made by tools/reference.py; a test holds the real answers to it. What a
field means stands beside it: in its description, or in a record's comment.
"""

from __future__ import annotations

import inspect
import re
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter

from vmtax.doctor.check import Check
from vmtax.plan import Plan
from vmtax.report.json import SCHEMA
from vmtax.result import Better, Boot, Disturbance, Json, State, Verdict
from vmtax.sessions import Gate, Outcome
from vmtax.stats import SessionMethod
from vmtax.store import ExperimentSummary


class _Part(BaseModel):
    model_config = ConfigDict(extra="forbid")


class Treatment(_Part):
    """One layer and one level of each factor."""

    name: str = Field(description="the layer, then the levels that differ within the plan")
    layer: Literal["host", "vm", "nested"] = Field(description="where it ran")
    levels: dict[str, str] = Field(description="every factor's level")
    repeats: str | None = Field(description="name of the treatment that it is once more in each round: the A/A")
    side: str = Field(description="what --interleave-with names, for the treatments of that side")
    emulated: bool = Field(description="a boot of it, or its host, ran on an emulated CPU")


class _Place(_Part):
    treatment: str = Field(description="name of a treatment")
    workload: str = Field(description="chess, memory, disk, net or boot")
    case: str = Field(description="part of the workload; empty where there is only one")
    round: int = Field(description="from 1")
    position: int = Field(description="of the treatment within its round, from 1")
    iteration: int = Field(description="within the boot, from 1")
    started: float = Field(description="seconds since the epoch")
    wall_seconds: float = Field(description="of the command, in seconds, seen from outside")
    warnings: list[str] = Field(description="doubts about the number")
    disturbance: Disturbance | None = Field(description="what else happened on the host under test; null: not read")


class Measurement(_Place):
    """One number of one trial that may be compared."""

    metric: str = Field(description="its name")
    unit: str = Field(description="base unit: 1/s, s, B/s, bit/s, B, s/B or 1")
    better: Better = Field(description="which direction is an improvement")
    value: float = Field(description="in unit")
    emulated: bool = Field(description="a boot of the treatment, or its host, ran on an emulated CPU")


class Failure(_Place):
    """A trial without a number: what it ran did not work, or must not be compared."""

    status: Literal["failed", "refused"] = Field(description="did not work; worked, but must not be compared")
    error: str | None = Field(description="why, one line")


class Overhead(_Part):
    """Lost rate, 1 - ratio, where higher is better; added time, ratio - 1, where lower is better."""

    estimate: float | None = Field(description="a fraction: 0.02 is 2 %; above 0 is a cost")
    low: float | None = Field(description="lower end of its interval")
    high: float | None = Field(description="upper end of its interval")


class Comparison(_Part):
    """One metric of one treatment against a baseline; null bounds: too few rounds for an interval."""

    metric: str = Field(description="its name")
    unit: str = Field(description="base unit of the metric; the ratio has none")
    better: Better = Field(description="which direction is an improvement")
    baseline: str = Field(description="name of the treatment that it is compared with")
    treatment: str = Field(description="name of the treatment")
    ratio: float | None = Field(description="exp of the Hodges-Lehmann estimate of ln(treatment / baseline)")
    low: float | None = Field(description="lower end of the ratio's interval")
    high: float | None = Field(description="upper end of the ratio's interval")
    overhead: Overhead = Field(description="the same as a cost")
    rounds: int = Field(description="rounds in which both sides have a value")
    verdict: Verdict = Field(description="what the interval shows")
    mean_ratio: float | None = Field(description="exp of the mean of ln(treatment / baseline); stalls move it")
    p95_ratio: float | None = Field(description="of the slow tails; null with fewer than 200 rounds")
    baseline_stalls: float = Field(description="share of the baseline's runs slower than 1.5 times their median")
    treatment_stalls: float = Field(description="the same of the treatment's runs")
    stalls_p: float = Field(description="Fisher's exact test of the two")
    carry_over: float | None = Field(description="log ratio with the baseline first minus that with it second")
    carry_over_p: float | None = Field(description="of that, by permutation; null: the order never changed")
    emulated: bool = Field(description="either side is")
    warnings: list[str] = Field(description="doubts, each with its cure")


class Schedule(_Part):
    """What the pilot planned for one case of a workload, the same in all boots."""

    workload: str = Field(description="chess, memory, disk or net")
    case: str = Field(description="part of the workload; empty where there is only one")
    metric: str = Field(description="that it was planned by")
    warm_up: int = Field(description="leading iterations of every boot that no comparison counts")
    iterations: int = Field(description="that count, in each boot after the pilot")
    steady: bool = Field(description="false: values never settled; then the first iterations of each boot are compared")
    reason: str = Field(description="how the warm-up was found, or why not")


class Variance(_Part):
    """Where the variance of a metric's logarithm is; warm-up left out."""

    metric: str = Field(description="a primary one")
    treatment: str = Field(description="name of a treatment")
    emulated: bool = Field(description="a boot of it, or its host, ran on an emulated CPU")
    share_between: float = Field(description="the part of the variance that is between boots, 0 to 1")
    between: float = Field(description="variance between boots")
    within: float = Field(description="variance of iterations within a boot")
    boots: int = Field(description="how many it is from")
    iterations: int = Field(description="in all of them together")


class Standing(_Part):
    """One treatment in a ranking; overheads against the best, fractions, above 0 is a cost."""

    treatment: str = Field(description="its name")
    overhead: float | None = Field(description="estimate; null: no round has both it and the best")
    low: float | None = Field(description="lower end of its interval; null: too few rounds, or the best itself")
    high: float | None = Field(description="upper end of its interval")
    top: bool = Field(description="no other is shown to beat it")
    tie: bool = Field(description="its interval lies within same_within of the best")
    beaten_by: list[str] = Field(description="names of those shown to be better, best first")
    emulated: bool = Field(description="a boot of it, or its host, ran on an emulated CPU")


class Ranking(_Part):
    """One metric of one layer's treatments, where there are three or more."""

    metric: str = Field(description="its name")
    layer: str = Field(description="host, vm or nested")
    side: str = Field(description="as of its treatments")
    standings: list[Standing] = Field(description="best first")
    rounds: int = Field(description="in which two treatments or more have a value")
    incomplete: int = Field(description="of these, in which not all have")
    same_within: float = Field(description="what makes a tie: a fraction, from the plan")
    unranked: list[str] = Field(description="treatments with values in fewer than half of the rounds")


class Yardstick(_Part):
    """What a part of a score is measured by."""

    treatment: str = Field(description="its name")
    host: bool = Field(description="bare metal; else the first treatment that has the numbers")
    same_round: int = Field(description="rounds in which it has its own number")
    other_rounds: int = Field(description="rounds in which it has none, and the median of its others serves")


class ScorePart(_Part):
    """One metric of a score."""

    metric: str = Field(description="its name")
    weight: float = Field(description="above 0; its share of the sum counts")
    yardstick: Yardstick | None = Field(description="null: taken as it is, the article's factor scales to it")


class ScoreValue(_Part):
    """One treatment's score."""

    treatment: str = Field(description="its name; of a host too, where it has all parts")
    value: float = Field(description="median over rounds, in the score's unit")
    emulated: bool = Field(description="a boot of it, or its host, ran on an emulated CPU")


class OtherWinner(_Part):
    """Who wins by other weights."""

    treatment: str = Field(description="its name")
    draws_won: float = Field(description="share of the drawn sets of weights, 0 to 1; 0: only a corner")


class Stability(_Part):
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


class Score(_Part):
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


class Scores(_Part):
    """Storage scores, of every layer with three treatments or more."""

    found: list[Score] = Field(description="layer by layer, the article's first; a mix where --for or --weights asks")
    missing: list[str] = Field(description="why a score could not be made, for people")


class Within(_Part):
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


class Against(_Part):
    """A choice against the fastest, as fractions; above 0 is worse. null: not measured, or too few rounds."""

    slower: float | None = Field(description="of the rate lost")
    slower_low: float | None = Field(description="lower end of its interval")
    slower_high: float | None = Field(description="upper end of its interval")
    dearer: float | None = Field(description="host CPU time more, for one operation")
    dearer_low: float | None = Field(description="lower end of its interval")
    dearer_high: float | None = Field(description="upper end of its interval")


class DiskChoice(_Part):
    """A way to keep a disk that meets what is needed."""

    treatment: str = Field(description="its name")
    features: list[str] = Field(description="that it is shown, or documented, to have")
    unusual: list[str] = Field(description="its settings that are not the default")
    best: Against = Field(description="against the fastest")
    in_pareto_set: bool = Field(description="of speed, host CPU and features")
    tie: bool = Field(description="its interval against the fastest lies within same_within")
    emulated: bool = Field(description="a boot of it, or its host, ran on an emulated CPU")


class Refused(_Part):
    """A way to keep a disk that was not considered."""

    treatment: str = Field(description="its name")
    why: str = Field(description="for people")


class DiskForms(_Part):
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


class FeatureFound(_Part):
    """What one way to keep a disk can do, or not."""

    name: str = Field(description="durable, savevm, snapshots, file, thin, pause-on-full or migration")
    state: Literal["yes", "no", "not tried"] = Field(description="the answer")
    how: str = Field(description="what was done to find out, or documented")
    words: str = Field(description="why; of who refused, where somebody did")


class GivenUp(_Part):
    """One row of the table of what each choice gives up."""

    treatment: str = Field(description="its name")
    features: list[FeatureFound] = Field(description="each once")


class Advice(_Part):
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


class FactorEffect(_Part):
    """One level of a factor against its first, or what two levels do together beyond each alone."""

    metric: str = Field(description="its name, one of the plan's primary")
    layer: str = Field(description="host, vm or nested")
    side: str = Field(description="as of its treatments")
    factors: list[str] = Field(description="one, or two that interact")
    levels: list[str] = Field(description="one for each factor")
    overhead: float = Field(description="estimate, a fraction, above 0 is a cost")
    low: float = Field(description="lower end of the interval of this level alone")
    high: float = Field(description="upper end of the interval of this level alone")
    share: float = Field(description="of the variance within rounds that the factors explain so, 0 to 1")
    shown: bool = Field(description="all levels at once do something; one error rate over a metric's factors and pairs")
    emulated: bool = Field(description="any treatment of the layer is")


class Decision(_Part):
    """The answer to the plan's question about one primary contrast."""

    metric: str = Field(description="its name")
    baseline: str = Field(description="name of the treatment that it is compared with")
    treatment: str = Field(description="name of the treatment")
    worse: Literal["yes", "no", "undecided"] = Field(description="by more than the plan's decide.worse_than")
    emulated: bool = Field(description="either side is")


class Experiment(_Part):
    """One run of a plan."""

    id: str = Field(description="unique; sorts by time")
    name: str = Field(description="the plan's")
    host: str = Field(description="where it was measured, as given: local, ssh://[user@]host or lab[:NAME]")
    command: str = Field(description="what repeats it")
    created: float = Field(description="seconds since the epoch")
    finished: float | None = Field(description="seconds since the epoch; null: not finished")
    state: State = Field(description="how far it is")
    ended: str | None = Field(description="why there were no more rounds; null: not known, or not ended by itself")
    plan: Json = Field(description="the plan with every default, as `vmtax plan show --json` gives it")
    notes: list[str] = Field(description="what was not measured, and why; what a reader must know")
    facts: dict[str, Any] = Field(description="machine path to the facts of that machine; null: not to be found out")
    treatments: list[Treatment] = Field(description="what was compared")
    boots: list[Boot] = Field(description="every start of a guest")
    measurements: list[Measurement] = Field(description="every number, trial by trial")
    failures: list[Failure] = Field(description="every trial without a number")
    comparisons: list[Comparison] = Field(description="what came out")
    schedules: list[Schedule] = Field(description="what the pilot planned; empty without `iterations: auto`")
    variance: list[Variance] = Field(description="of primary metrics; empty where boots have one iteration")
    noise_floor: list[Comparison] = Field(description="one guest treatment against itself: the A/A, primary metrics")
    rankings: list[Ranking] = Field(description="of every layer with three treatments or more")
    scores: Scores = Field(description="storage ranked by one figure: as the article does, and by mixes")
    within: list[Within] = Field(description="what queue depth gains, what a first write loses; of three or more disks")
    advice: Advice | None = Field(description="null: the run did not find out what its disks can do, or has no choice")
    effects: list[FactorEffect] = Field(description="of layers in which two factors or more differ")
    decisions: list[Decision] = Field(description="answers to the plan's decide; empty where it asks nothing")
    ledger: list[Any] = Field(description="who used the host's CPU; empty in this version")


class FactChange(_Part):
    """One fact of a machine that is not the same before and after."""

    path: str = Field(description="the machine's path")
    name: str = Field(description="dotted name of the fact")
    before: str = Field(description="for people; several values joined by |, where sessions of that side differ")
    after: str = Field(description="the same, after")


class ChangeLine(_Part):
    """One metric of one treatment, or of one contrast between two, after against before; over sessions."""

    metric: str = Field(description="its name")
    unit: str = Field(description="base unit of the metric; the ratio has none")
    better: Better = Field(description="which direction is an improvement")
    treatment: str = Field(description="name of a treatment; `vm against host`: the overhead itself")
    primary: bool = Field(description="the verdict is about these; the others are exploratory")
    ratio: float | None = Field(description="after / before: exp of the difference of the sessions' mean levels")
    low: float | None = Field(description="lower end of its 95 % interval; null: cannot be given")
    high: float | None = Field(description="upper end of its 95 % interval")
    cost: Overhead = Field(description="the same as a cost of the change")
    sessions: tuple[int, int] = Field(description="before, after; boots of the host where it was rebooted in between")
    method: SessionMethod = Field(description="where the variance between sessions is from")
    verdict: Outcome = Field(description="worse, better: the interval excludes 0; same: it is within same_within")
    gate: Gate | None = Field(description="failed: wholly beyond fail_if_worse; passed: null: no limit, or not primary")
    emulated: bool = Field(description="either side is")
    why: str | None = Field(description="it is undecided, and what would decide it")


class Change(_Part):
    """Runs before a change against runs after it: what `vmtax compare` found."""

    before: list[str] = Field(description="ids of the runs before")
    after: list[str] = Field(description="ids of the runs after")
    hosts: tuple[str, str] = Field(description="where measured, before and after, as given")
    facts: list[FactChange] = Field(description="what differs about the machines")
    emulated: list[str] = Field(description="treatments that ran on an emulated CPU")
    same_within: float = Field(description="fraction within which two are the same")
    fail_if_worse: float | None = Field(description="fraction by which after may be worse; null: nothing was asked")
    gate: Gate | None = Field(description="of all primary lines: failed where any is, else undecided where any is")
    lines: list[ChangeLine] = Field(description="what came out, the primary lines first")
    warnings: list[str] = Field(description="doubts, each with its cure")


class PlanLine(_Part):
    """A built-in plan."""

    name: str = Field(description="what `vmtax run` takes")
    describe: str = Field(description="the question that it answers")


class Diagnosis(_Part):
    """What `vmtax doctor` found."""

    host: str = Field(description="as given: local, ssh://[user@]host or lab[:NAME]")
    about: str = Field(description="processor, memory, system; one line")
    measurable: bool = Field(description="host and VM can be measured")
    checks: list[Check] = Field(description="one for each thing looked at")


class Target(_Part):
    """A half-width, and what it takes here."""

    half_width: float = Field(description="of the 95 % interval, a fraction")
    rounds: int = Field(description="until it is reached")
    seconds: float = Field(description="that they take")


class Reach(_Part):
    """One primary metric of a guest against itself."""

    metric: str = Field(description="its name")
    cv: float | None = Field(description="coefficient of variation of one run, a fraction; null: too few rounds")
    half_width: float | None = Field(description="that was reached, a fraction")
    rounds: int = Field(description="in which both have a value")
    targets: list[Target] = Field(description="1, 2 and 5 %")
    between_sessions_sd: float | None = Field(description="of the level, in log, over calibrations; null: too few")


class Calibration(_Part):
    """What precision a machine can reach, in how long."""

    run: str = Field(description="id of the experiment")
    host: str = Field(description="where it was measured")
    emulated: bool = Field(description="the guest, or its host, ran on an emulated CPU")
    seconds_per_round: float = Field(description="of two boots and their workloads")
    sessions: int = Field(description="calibrations that are alike, this one included")
    metrics: list[Reach] = Field(description="primary, in the plan's order")


class LabState(_Part):
    """An emulated host."""

    name: str = Field(description="its name")
    host: str = Field(description="what `--host` takes")
    state: Literal["up", "off"] = Field(description="whether it is running")
    saved: bool = Field(description="whether `lab start --from` can begin from it")
    directory: str = Field(description="of its disks and records")
    vcpus: int = Field(description="CPUs")
    memory_bytes: int = Field(description="that it is given")
    spares: int = Field(description="disks for storage under test")
    spare_bytes: int = Field(description="size of each")
    nvme: bool = Field(description="whether there is one more, as NVMe")
    accelerator: str = Field(description="kvm or tcg (emulated), at its last start, as what follows")
    qemu: str = Field(description="version")
    image: str = Field(description="identity of the root image")
    kernel: str = Field(description="release")
    zfs: str | None = Field(description="version; null: none was built")
    started: float | None = Field(description="when it was started; null, as what follows, where it is off")
    ready_seconds: float | None = Field(description="from the start command to the first answered command")
    settled_seconds: float | None = Field(description="until all its devices were there")
    port: int | None = Field(description="of its ssh, on 127.0.0.1")
    peer_namespace: str | None = Field(description="network namespace of its peer; null: user networking")
    warnings: list[str] = Field(description="of its start")


KINDS: dict[str, Any] = {  # kind -> type of its data
    "experiment": Experiment,
    "comparison": Change,
    "runs": list[ExperimentSummary],
    "plan": Plan,
    "plans": list[PlanLine],
    "plan-check": list[str],
    "doctor": Diagnosis,
    "calibration": Calibration,
    "lab": LabState,
    "labs": list[LabState],
}
RECORDS = (Boot, Check, Disturbance, ExperimentSummary)


def json_schema() -> Json:
    """JSON Schema (2020-12) of every answer: one envelope for each kind."""
    inputs = [(kind, "serialization", TypeAdapter(data)) for kind, data in KINDS.items()]
    by_kind, shared = TypeAdapter.json_schemas(inputs)  # type: ignore[arg-type]
    envelopes = [
        {
            "title": kind,
            "type": "object",
            "properties": {"schema": {"const": SCHEMA}, "kind": {"const": kind}, "data": data},
            "required": ["schema", "kind", "data"],
            "additionalProperties": False,
        }
        for (kind, _), data in by_kind.items()
    ]
    for record in RECORDS:
        for name, text in comments(record).items():
            shared["$defs"][record.__name__]["properties"][name].setdefault("description", text)
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": SCHEMA, "oneOf": envelopes, **shared}


def comments(record: type) -> dict[str, str]:
    """Field -> the comment beside it. Records have no descriptions, for whoever uses them need not load pydantic."""
    found = re.findall(r"^    (\w+): [^#\n]*#\s+(.+)$", inspect.getsource(record), re.MULTILINE)
    return {name: text.replace("None:", "null:") for name, text in found}  # as JSON calls it
