"""Cut the power of the host under test itself: a guest writes, the host is cut, and the disk is read once it is back.

The session of the run ends with each cut, because nothing that was set up on the host exists any more. The trial is
committed first; the command line then resumes the run, and the new session's guard undoes what the list on the host
still names.
"""

from __future__ import annotations

import contextlib
import json
import random
import time
from collections.abc import Iterator, Mapping

from vmtax.core.errors import CannotDo
from vmtax.experiment.checkers import Verifier
from vmtax.experiment.durability import LISTEN_SECONDS, Ending, EndWhileWriting, Kept, Witness, lines_of, listen
from vmtax.hypervisor import Guest
from vmtax.machine import Machine, MachineError, Process
from vmtax.machine.ssh import SshMachine
from vmtax.meter.facts import present_boot
from vmtax.storage.copies import fetch
from vmtax.testbed.session.power import Cutting, Power
from vmtax.testbed.storage.cutting import CHECKED_ID
from vmtax.workload.durability import REAL_CUT, Counts

SLICE_SECONDS = 0.5  # to listen before the command is checked again
ANSWER_SECONDS = 5.0


class PowerWasCut(CannotDo):
    """A session of a run is over because its host was cut; another session continues the run."""

    def __init__(self, run: str) -> None:
        self.run = run
        super().__init__(f"the host's power was cut, as agreed: vmtax run --resume {run} goes on")


@contextlib.contextmanager
def session_of(power: Power | None, run: str) -> Iterator[None]:
    """Wraps all work on one treatment. Raises PowerWasCut if its host was cut, or the reason why the run cannot
    continue.
    """
    try:
        yield
    except (CannotDo, OSError):  # something could not be undone, because the host is off
        if power is None or not power.is_over:
            raise
    if power is not None and power.is_over:
        raise power.problem or PowerWasCut(run)


class EndOrCut(EndWhileWriting):
    """Ends the guests as usual or, if the host's power is to be cut, cuts that instead."""

    def ended(self, ending: Ending) -> Mapping[str, Counts]:
        guest, cut, workload, running = ending.guest, ending.cut, ending.workload, ending.running
        if cut.power is None:
            return super().ended(ending)
        seed, copies, local = random.SystemRandom().getrandbits(64), cut.copies, cut.copies.local
        ending.say("writing", ", ".join(workload.writers))
        boot_id = present_boot(running.host)
        witness = Witness()
        with contextlib.ExitStack() as ends:
            process = listen(running.host, guest, cut, workload, random.Random(seed), witness, ends)
            _refuse_idle(guest, witness)
            with cut.power.ends_session(), cut.power.cutting(local) as cutting:
                ending.say(f"cutting the power of {cut.power.host}", cut.power.order.words)
                try:
                    _hear_the_last(process, witness, cutting)
                    host = cutting.wait(boot_id, cut.disk.path, ending.emit)
                finally:
                    _hang_up(running.host)
        off = round(cutting.watch.seconds, 1)
        facts = {"seed": seed, "acknowledged": witness.acknowledged, "command": cut.power.order.words}
        ending.raw.append(json.dumps({**facts, "boot_id": boot_id, "seconds_off": off}))
        try:
            ending.say("copying its disk", str(cut.disk.path))
            fetch(host, local, cut.disk.path, copies.image)
        finally:
            host.close()
        seen = Counts(image_damaged=None if copies.is_raw else 0)
        ending.say("checking its disk", "in a guest of this machine")
        with cut.boot_checker(copies, ()) as checker, contextlib.ExitStack() as ends:
            verifier = Verifier(checker, [CHECKED_ID], workload, "")
            ends.callback(verifier.end)
            result = verifier.verify(witness.acknowledged, copies.check_and_convert())
        Kept(ending.raw).add(seen, REAL_CUT, witness.acknowledged, result)
        return {REAL_CUT: seen}


def _refuse_idle(guest: Guest, witness: Witness) -> None:
    """Raises CannotDo if a cut would prove nothing: the guest or a writer failed, or nothing was acknowledged."""
    if why := guest.cause_of_death():
        raise CannotDo(f"no power was cut: {why}")
    if witness.errors:
        raise CannotDo(f"{guest.path}: a writer failed, so no power was cut: {witness.errors[0]}")
    if not witness.acknowledged:
        raise CannotDo(
            f"{guest.path}: nothing was acknowledged, so no power was cut; raise workloads.durability.seconds"
        )


def _hang_up(host: Machine) -> None:
    """Close the connection to a host that no longer answers, so that nothing waits for its answers."""
    try:
        host.try_run("true", timeout=ANSWER_SECONDS)
    except MachineError:
        if isinstance(host, SshMachine):
            host.hang_up()


def _hear_the_last(process: Process, witness: Witness, cutting: Cutting) -> None:
    """Record acknowledgements until the connection breaks, the writers are done, or the power should be gone. Raises
    NotCut.
    """
    is_last = False
    while not is_last:
        # Checked before the lines are read, so that everything printed until now is among them.
        is_last = cutting.is_late or cutting.is_over or process.poll() is not None
        for line in lines_of(process, time.monotonic() + SLICE_SECONDS, LISTEN_SECONDS):
            if line is not None:
                witness.hear(line)
