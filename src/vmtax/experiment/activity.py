"""Activities: actions on guests from outside that are timed, instead of commands that run inside guests."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from vmtax.core.events import Event
from vmtax.core.records import Trial
from vmtax.core.stopwatch import Stopwatch
from vmtax.experiment.migrate import Migrate
from vmtax.experiment.real_cut import EndOrCut
from vmtax.experiment.trial import TrialKey, new_trial
from vmtax.hypervisor import Guest
from vmtax.testbed.session.base import Cut, RunningTreatment
from vmtax.workload import Workload
from vmtax.workload.boot import BootTime, measured


class Activity(Protocol):
    """An action that is carried out once on the guests of a treatment in each of its rounds."""

    workload: ClassVar[str]  # name of the workload whose metrics it measures

    def perform(
        self, key: TrialKey, running: RunningTreatment, workload: Workload[Any] | None, emit: Callable[[Event], None]
    ) -> Sequence[Trial]:
        """Carry it out on all subjects; a trial for each guest among them.

        `workload`: None if its trials are not kept
        `emit`: gets progress, if it takes long
        """


class StartAndStop:
    """Measures how long each guest took to start and takes to shut down. Comes last, because it ends the guests."""

    workload: ClassVar[str] = BootTime.name

    def perform(
        self, key: TrialKey, running: RunningTreatment, workload: Workload[Any] | None, emit: Callable[[Event], None]
    ) -> Sequence[Trial]:
        guests = [one.guest for one in running.subjects if one.guest is not None and one.offer(Cut) is None]
        return [self._trial(key, guest, guest.shut_down()) for guest in guests]

    def _trial(self, key: TrialKey, guest: Guest, shutdown_seconds: float | None) -> Trial:
        """`shutdown_seconds`: None if the guest did not shut down properly."""
        seconds = guest.ready_seconds + (shutdown_seconds or 0.0)
        measurements = measured(guest.ready_seconds, guest.kernel_seconds, shutdown_seconds)
        rest = {"measurements": measurements, "warnings": tuple(guest.warnings), "raw": guest.console.text()}
        return new_trial(key, BOOT, guest.path, Stopwatch().started - seconds, seconds, **rest)


BOOT = (BootTime.name, "")  # workload and case
# In the order in which they are performed.
ACTIVITIES: tuple[Activity, ...] = (Migrate(), EndOrCut(), StartAndStop())


def failed_boot(key: TrialKey, watch: Stopwatch, error: str) -> Trial:
    """The trial of guests that did not come up, or were lost in the middle of a round."""
    first = error.partition("\n")[0]
    return new_trial(key, BOOT, "", watch.started, watch.seconds, status="failed", error=first, raw=error)
