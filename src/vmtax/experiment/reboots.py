"""Runs that compare boot options of their host: which boot of the host measures what, and when the next boot is
needed.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from vmtax.core.errors import REBOOT, CannotDo
from vmtax.core.records import Experiment, Json
from vmtax.design import host as host_settings
from vmtax.design.host import AS_USUAL, boots_asked
from vmtax.design.reboots import HOST, Block, boots_of, next_block
from vmtax.experiment.resume import OF_BOOT, CannotResume, fact, refuse_other_host
from vmtax.lab.reboot import is_off
from vmtax.testbed.host.hosts import lab_of

NOISE_FLOOR = (
    "The repeated configuration runs in the same boot of the host as its original: the noise floor lacks what differs "
    "from boot to boot of the host, which the intervals of host.kernel_arguments include."
)


class RebootNeeded(CannotDo):
    """The host must be booted differently before the run can continue; everything that was measured is kept."""

    exit_code = REBOOT

    def __init__(self, run: str, block: Block, levels: tuple[str, ...]) -> None:
        self.run, self.block = run, block
        how = host_settings.in_words(block.level, levels)
        self.waits = f"waits for its host to be booted {how}"
        super().__init__(f"for round {block.round}, boot the host {how}; then: vmtax run --after-reboot {run}")


@dataclass
class Reboots:
    """One session of such a run, which is one boot of the host."""

    run: str  # id of the experiment
    levels: tuple[str, ...]  # boot options that the host gets in turn
    facts: Json  # of the host in its present boot
    boots: list[Json] = field(default_factory=list)  # those that measured something, the newest last

    @property
    def cut_short(self) -> bool:
        """Whether the newest boot did not finish its block."""
        return bool(self.boots) and not self.boots[-1]["over"]

    def is_over(self, block: Block) -> bool:
        """Whether all of the block was measured before."""
        return any(_is_of(boot, block) and boot["over"] for boot in self.boots)

    def begin(self, block: Block) -> None:
        """The present boot now measures that block; the previous block is over. Raises RebootNeeded."""
        newest = self.boots[-1] if self.boots else None
        if newest is not None and _is_of(newest, block):
            if newest["boot_id"] == self.facts["boot_id"]:
                return
        elif newest is not None:
            self.boots[-1] = {**newest, "over": True}
        if not fits(block, self.levels, self.boots, self.facts):
            raise RebootNeeded(self.run, block, self.levels)
        known = {name: self.facts.get(name) for name in ("boot_id", *OF_BOOT)}
        self.boots.append({"round": block.round, "level": block.level, "began": time.time(), "over": False, **known})


def fits(block: Block, levels: tuple[str, ...], boots: list[Json], facts: Mapping[str, Any]) -> bool:
    """Whether the host is booted as the block asks, and this boot has measured no other block."""
    is_used = any(boot["boot_id"] == facts["boot_id"] for boot in boots)
    return not is_used and host_settings.is_booted(block.level, levels, facts["kernel_command_line"] or "")


def refuse_off(experiment: Experiment) -> None:
    """Raises RebootNeeded if the host is a lab that is off, as after a reboot of it that was killed."""
    levels, one = boots_asked(experiment.treatments), lab_of(experiment.host)
    if levels and one is not None and is_off(one):
        raise RebootNeeded(experiment.id, next_block(experiment), levels)


def refuse_boot(experiment: Experiment, booted: Mapping[str, Any], *, rebooted: bool | None) -> None:
    """Raises RebootNeeded or CannotResume if the host is not booted as the experiment needs next.

    booted: its "boot_id" and "kernel_command_line"
    rebooted: whether the user says that it was rebooted since; None: it is a lab, which vmtax can check itself
    """
    run, levels = experiment.id, boots_asked(experiment.treatments)
    if not levels:
        return
    block, boots = next_block(experiment), boots_of(experiment)
    goes_on = bool(boots) and not boots[-1]["over"] and boots[-1]["boot_id"] == booted["boot_id"]
    known = {boot["boot_id"] for boot in boots} | {fact(experiment.facts, f"{HOST}.boot_id")} - {None}
    is_new, how = booted["boot_id"] not in known, host_settings.in_words(block.level, levels)
    if rebooted and not is_new:
        cure = f"vmtax run --resume {run} goes on in this boot" if goes_on else f"reboot it {how}"
        raise CannotResume(f"{run}: the host was not rebooted since the run stopped: {cure}")
    if rebooted is False and is_new and known:
        raise CannotResume(f"{run}: the host was rebooted since: vmtax run --after-reboot {run}")
    if goes_on or fits(block, levels, boots, booted):
        return
    if rebooted:
        found = " ".join(host_settings.named(booted["kernel_command_line"], levels))
        is_booted = host_settings.in_words(found or AS_USUAL, levels)
        raise CannotResume(
            f"{run}: the host must be booted {how}, and is booted {is_booted}: nothing was measured; reboot it, then:"
            f" vmtax run --after-reboot {run}"
        )
    raise RebootNeeded(run, block, levels)


def refuse_changed(experiment: Experiment, facts_by_path: Mapping[str, Json]) -> None:
    """Like `refuse_other_host`; additionally, boots with the same arguments must agree in the facts that depend on
    them.
    """
    refuse_other_host(experiment, facts_by_path)
    if boots_asked(experiment.treatments):
        _refuse_other_boot(experiment, facts_by_path[HOST])


def _refuse_other_boot(experiment: Experiment, facts: Json) -> None:
    levels, boots = boots_asked(experiment.treatments), boots_of(experiment)
    line = str(facts.get("kernel_command_line") or "")
    alike = [boot for boot in boots if host_settings.is_booted(boot["level"], levels, line)]
    differing = [
        f"{name} was {alike[-1].get(name)}, is {facts.get(name)}"
        for name in OF_BOOT
        if name != "kernel_command_line" and alike and alike[-1].get(name) != facts.get(name)
    ]
    rest = {host_settings.others(str(boot["kernel_command_line"]), levels) for boot in boots}
    here = host_settings.others(line, levels)
    if rest and here not in rest:
        was, now = " ".join(rest.pop()), " ".join(here)
        differing.append(f"the rest of its kernel's command line was {was}, is {now}")
    if differing:
        raise CannotResume(
            f"{experiment.id} cannot go on: the host is not booted as before ({'; '.join(differing)}), so its boots "
            "would differ in more than what is compared; undo the change, or start a new run"
        )


def _is_of(boot: Json, block: Block) -> bool:
    return (boot["round"], boot["level"]) == (block.round, block.level)
