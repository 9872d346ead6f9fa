"""Made-up runs of durability trials, in the shape of real ones. No number in here was ever counted.

What is in them, so that tests can look for it: `unsafe` loses in every way; writeback without losses is shown durable;
directsync has too few states; on one disk the control loses nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from tests.sample import CREATED, sample_experiment
from vmtax.analysis.analysis import Analysis
from vmtax.analysis.durability import Survival
from vmtax.core.records import Boot, Experiment, Json, Measurement, Treatment, Trial
from vmtax.workload.durability import CONTROL, FILE_SYSTEM, IMAGE, KILLED, LOST, NAME, POWER_CUT, STATES, TORN, metric

WRITERS = ("append-fsync-4k", "overwrite-fdatasync-64k", "rename-fsync-16k", "append-dsync-4k", "sqlite-wal")
Losses = Mapping[str, tuple[int, int]]  # writer -> states in which it lost, and tore, acknowledged data; of one round


def trial(
    treatment: str,
    number: int,
    end: str = POWER_CUT,
    *,
    states: int = 800,
    lost: int = 0,
    damaged: int = 0,
    image: int | None = None,
    control: int | None = 700,
    losses: Losses = MappingProxyType({}),
    position: int = 1,
    **changes: Any,
) -> Trial:
    """One trial of one end. `control`: states in which it lost; None: there was none."""
    counts = {
        metric(end, STATES): states,
        metric(end, LOST): lost,
        metric(end, FILE_SYSTEM): damaged,
        **({metric(end, IMAGE): image} if image is not None else {}),
    }
    for writer in WRITERS:
        gone, torn = losses.get(writer, (0, 0))
        counts |= {
            metric(end, STATES, writer): states - states // 10,
            metric(end, LOST, writer): gone,
            metric(end, TORN, writer): torn,
        }
    if control is not None:
        counts |= {
            metric(end, STATES, CONTROL): states,
            metric(end, LOST, CONTROL): control,
            metric(end, TORN, CONTROL): 0,
        }
    measured = tuple(Measurement(one, float(value)) for one, value in counts.items())
    found = Trial(number, position, treatment, NAME, end, 1, "ok", CREATED + 60.0 * number, 20.0, measured)
    return replace(found, machine="host/vm", **changes)


def treatment(**levels: str) -> Treatment:
    """A guest that is called after its levels, each of a factor of disks."""
    named = {f"disk.{name}" if name != "sync" else "zfs.sync": level for name, level in levels.items()}
    return Treatment(" ".join(["vm", *(f"{name}={level}" for name, level in named.items())]), "vm", named)


NONE, WRITEBACK, UNSAFE = (treatment(cache=cache) for cache in ("none", "writeback", "unsafe"))
DIRECTSYNC, QCOW2 = treatment(cache="directsync"), treatment(cache="none", format="qcow2")


def experiment(*trials: Trial, treatments: tuple[Treatment, ...] | None = None, emulated: bool = False) -> Experiment:
    """A run of these trials alone."""
    base = sample_experiment(rounds=1, emulated=emulated)
    names = dict.fromkeys(one.treatment for one in trials)
    known = {one.name: one for one in (NONE, WRITEBACK, UNSAFE, DIRECTSYNC, QCOW2)}
    chosen = treatments or tuple(known[name] for name in names)
    argv, cpu = ("qemu-system-x86_64",), "tcg" if emulated else "kvm"
    boots = tuple(Boot(1, one.name, "host/vm", cpu, emulated, argv, 4.0, 2.0) for one in chosen)
    rounds = {"min": 3, "max": 3}
    plan: Json = {**base.plan, "name": NAME, "layers": ["vm"], "workloads": [NAME], "primary": [], "rounds": rounds}
    return replace(
        base,
        id=f"20261123-0800-{NAME}-7f3a",
        name=NAME,
        command=f"vmtax run {NAME}",
        plan=plan,
        facts={"host": base.facts["host"]},
        treatments=chosen,
        boots=boots,
        trials=trials,
        notes=(),
    )


def durability_experiment(rounds: int = 3, *, emulated: bool = False, **changes: Any) -> Experiment:
    """Five ways to keep a disk, of which one is not durable, one has too few states, and one proves nothing."""
    return replace(experiment(*_trials(rounds), emulated=emulated), **changes)


def _trials(rounds: int) -> Iterator[Trial]:
    lossy: Losses = {"append-fsync-4k": (310, 12), "sqlite-wal": (240, 0), "rename-fsync-16k": (400, 3)}
    for number in range(1, rounds + 1):
        yield trial(NONE.name, number, states=714)
        yield trial(WRITEBACK.name, number, states=822, position=2)
        yield trial(UNSAFE.name, number, states=760, lost=512, damaged=31, losses=lossy, position=3)
        yield trial(DIRECTSYNC.name, number, states=40, control=33, position=4)
        yield trial(QCOW2.name, number, states=690, image=0, control=0, position=5)
        for position, one in enumerate((NONE, WRITEBACK, UNSAFE, DIRECTSYNC, QCOW2), 1):
            image = 0 if one == QCOW2 else None
            yield trial(one.name, number, KILLED, states=1, control=1, image=image, position=position)


def found(*trials: Trial, treatments: tuple[Treatment, ...] | None = None) -> Survival:
    survival = Analysis(experiment(*trials, treatments=treatments)).survival
    assert survival is not None
    return survival


def with_trials(run: Experiment, **lost: int) -> Experiment:
    """The run, with trials of each guest of the plain file system; `lost`: by cache mode."""
    tried = [t for t in run.treatments if t.layer == "vm" and t.levels["disk.filesystem"] == "ext4"]
    trials = [
        trial(t.name, number, states=700, lost=lost.get(t.levels["disk.cache"], 0)) for t in tried for number in (1, 2)
    ]
    return replace(run, trials=(*run.trials, *trials))
