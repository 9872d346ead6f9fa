"""Weight profiles: what a kind of work needs of a disk, as weights; built in, or given by a user. Pure.

The weights are judgements, each with its reason, in steps coarse enough not to be mistaken for measurements; how much
depends on them is computed for every ranking (`scores.Stability`).
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from vmtax.core.errors import BadInput
from vmtax.core.records import Experiment

LARGEST = 1e6  # of a weight
OWN = "weights"  # the name of a user's profile
_MOST_NAMED = 3  # metrics in one message
_LONGEST = 60  # characters of the input that a message repeats


class BadWeights(BadInput):
    """A profile or weights that make no sense, or not for this run."""


@dataclass(frozen=True, slots=True)
class Weight:
    """One metric of a profile."""

    metric: str  # its name
    weight: float  # above 0; only its share of the sum matters
    reason: str = ""  # why the work needs it; "" if a user gave it


@dataclass(frozen=True, slots=True)
class WeightProfile:
    """What a kind of work needs of a disk."""

    name: str  # "database", or OWN
    describe: str  # one line
    weights: tuple[Weight, ...]


_ALL = (
    WeightProfile(
        "database",
        "transactions on a database larger than its cache",
        (
            Weight("disk.randwrite-4k-fsync.iops", 4, "every commit waits until its log record is on the disk"),
            Weight("disk.randread-4k-qd1.iops", 2, "a look-up reads one page of an index after the other"),
            Weight("disk.randwrite-4k-qd32.iops", 2, "a checkpoint writes many changed pages at once"),
            Weight("disk.randrw-4k-qd8.iops", 1, "several sessions read while pages are written"),
            Weight("disk.randread-4k-qd1.p99_seconds", 1, "a transaction of a hundred reads waits for the slowest"),
        ),
    ),
    WeightProfile(
        "fileserver",
        "many users' files, most of them read",
        (
            Weight("disk.read-1m.bytes_per_second", 3, "large files are read from end to end"),
            Weight("disk.write-1m.bytes_per_second", 2, "uploads and backups write from end to end"),
            Weight("disk.randread-64k-qd8.bytes_per_second", 2, "several users read parts of different files"),
            Weight("disk.randwrite-64k-qd8.bytes_per_second", 1, "several users save files of medium size"),
            Weight("disk.randwrite-4k-fsync.iops", 1, "NFS makes a file durable before it says that it is closed"),
        ),
    ),
    WeightProfile(
        "desktop",
        "one person who waits",
        (
            Weight("disk.randread-4k-qd1.iops", 4, "a program that starts reads one small piece after the other"),
            Weight("disk.randwrite-4k-fsync.iops", 2, "browser and mail keep their state in databases that sync"),
            Weight("disk.randread-4k-qd1.p99_seconds", 1, "what stutters is the slow read, not the usual one"),
            Weight("disk.randwrite-4k-qd1.iops", 1, "documents and settings are saved, one small write at a time"),
            Weight("disk.read-1m.bytes_per_second", 1, "pictures and films are read from end to end"),
        ),
    ),
    WeightProfile(
        "build",
        "compiling and testing, several jobs at once",
        (
            Weight("disk.randread-4k-qd1.iops", 2, "sources and headers are many small files, read once each"),
            Weight("disk.randwrite-64k-qd8.bytes_per_second", 2, "several jobs write object files of medium size"),
            Weight("disk.write-1m.bytes_per_second", 2, "linkers and packagers write large files"),
            Weight("disk.first-write-64k.bytes_per_second", 1, "what is built is new: a sparse image grows"),
            Weight("disk.randwrite-4k-qd32.iops", 1, "an unpacked source tree is written back many pieces at once"),
            Weight("disk.read-1m.bytes_per_second", 1, "archives and tools are read from end to end"),
        ),
    ),
    WeightProfile(
        "windows-guest",
        "a Windows guest, as the KVM storage benchmark of 2013 weighs it",
        (
            Weight("disk.randread-4k-qd1.iops", 1, "small random reads count as much as sequential ones"),
            Weight("disk.read-1m.bytes_per_second", 1, "reads count as much as writes"),
            Weight("disk.randwrite-4k-qd1.iops", 1, "small random writes count as much as sequential ones"),
            Weight("disk.write-1m.bytes_per_second", 1, "writes count as much as reads"),
        ),
    ),
)
PROFILES = {profile.name: profile for profile in _ALL}


def asked(experiment: Experiment, name: str, weights: str) -> WeightProfile | None:
    """The profile named by `--for` or given by `--weights`, None if neither is used. Raises BadWeights.

    At least one metric of a built-in profile must have been measured, and all metrics of a user's weights, who asked
    for exactly these.
    """
    if name and weights:
        raise BadWeights("--for and --weights are two answers to one question: give one of them")
    if not name and not weights:
        return None
    if name and name not in PROFILES:
        from vmtax.plan.errors import unknown

        raise BadWeights(f"--for: {unknown('mix', name, PROFILES)}")
    from vmtax.workload.words import compared  # completing the names of mixes needs no workload

    trials = [trial for trial in experiment.trials if trial.status == "ok" and compared(trial.workload)]
    measured = {one.metric.name for trial in trials for one in trial.measurements}
    if weights:
        return WeightProfile(OWN, "weights that were given", tuple(_given(weights, measured, experiment.id)))
    profile = PROFILES[name]
    if not any(weight.metric in measured for weight in profile.weights):
        first, second, *_ = (weight.metric for weight in profile.weights)
        raise BadWeights(
            f"--for {name}: run {experiment.id} measured nothing of it; it weighs {first}, {second} and"
            f" {len(profile.weights) - 2} more, so add their patterns to the plan's disk workload"
        )
    return profile


def _given(text: str, measured: Iterable[str], run: str) -> Iterator[Weight]:
    """The weights of "disk.read-1m.bytes_per_second=1,...": those above 0."""
    found: dict[str, float] = {}
    for entry in filter(None, map(str.strip, text.split(","))):
        metric, equals, number = map(str.strip, entry.partition("="))
        if not equals or not metric or not number:
            raise BadWeights(
                f"--weights: {_quoted(entry)} is no METRIC=NUMBER; write disk.read-1m.bytes_per_second=1, say"
            )
        if metric in found:
            raise BadWeights(f"--weights: {metric} is given twice: give it once")
        _check_metric(metric, measured, run)
        found[metric] = _number(metric, number)
    if not any(found.values()):
        raise BadWeights("--weights: every weight is 0, so nothing would count: give one above 0")
    yield from (Weight(metric, weight) for metric, weight in found.items() if weight)


def _number(metric: str, text: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 <= weight <= LARGEST:
        raise BadWeights(f"--weights: {metric}={_quoted(text)} is no weight: a number from 0 to {LARGEST:,.0f}")
    return weight


def _check_metric(name: str, measured: Iterable[str], run: str) -> None:
    if name in measured:
        return
    have, known = sorted(measured), _known()
    near = difflib.get_close_matches(name[:100], have, n=_MOST_NAMED, cutoff=0.75)
    if name in known:
        instead = f"near it has {', '.join(near)}" if near else f"it has {_some(have)}"
        raise BadWeights(f"--weights: {name} was not measured in run {run}; {instead}")
    meant = f"did you mean {' or '.join(near)}?" if near else f"this run has {_some(have)}"
    raise BadWeights(f"--weights: unknown metric {_quoted(name)}; {meant}")


def _quoted(text: str) -> str:
    """The input, shortened, without characters that a terminal would interpret."""
    written = repr(text)
    return written if len(written) <= _LONGEST else f"{written[:_LONGEST]}..."


def _some(names: list[str]) -> str:
    rest = len(names) - _MOST_NAMED
    return f"{', '.join(names[:_MOST_NAMED]) or 'nothing'}{f' and {rest} more' if rest > 0 else ''} (vmtax show --full)"


def _known() -> set[str]:
    """Every metric that some plan could measure."""
    from vmtax.workload import WORKLOADS  # imports pydantic, which would take a tenth of a second of every `show`
    from vmtax.workload.fio import PATTERNS, Disk

    every = Disk.parameters_type.model_validate({"patterns": list(PATTERNS)})
    known = {metric.name for kind in WORKLOADS.values() for metric in kind(kind.parameters_type()).metrics()}
    known |= {metric.name for metric in Disk(every).metrics()}
    return known | {weight.metric for profile in PROFILES.values() for weight in profile.weights}
