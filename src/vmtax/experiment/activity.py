"""Activities: what is done to guests from outside and timed, where a command would be run inside them."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any, ClassVar, Protocol

from vmtax.core.events import Event
from vmtax.core.records import Trial
from vmtax.experiment.migrate import Migrate
from vmtax.experiment.real_cut import EndOrCut
from vmtax.experiment.trial import TrialKey, new_trial
from vmtax.hypervisor import Guest
from vmtax.testbed.base import RunningTreatment
from vmtax.workload import Workload
from vmtax.workload.boot import Boot, measured


class Activity(Protocol):
    """One thing to do to the guests of a treatment, once in each of its rounds."""

    workload: ClassVar[str]  # name of the workload whose metrics it measures

    def perform(
        self, key: TrialKey, running: RunningTreatment, workload: Workload[Any] | None, emit: Callable[[Event], None]
    ) -> Sequence[Trial]:
        """Do it to all subjects; a trial for each guest that is one.

        `workload`: None if its trials are not kept
        `emit`: gets what goes on, where it takes long
        """


class StartAndStop:
    """The start that each guest had, and its shutdown: performed last, for nothing can be done to a guest after it."""

    workload: ClassVar[str] = Boot.name

    def perform(
        self, key: TrialKey, running: RunningTreatment, workload: Workload[Any] | None, emit: Callable[[Event], None]
    ) -> Sequence[Trial]:
        guests = [one.guest for one in running.subjects if one.guest is not None and one.cut is None]
        return [self._trial(key, guest, guest.shut_down()) for guest in guests]

    def _trial(self, key: TrialKey, guest: Guest, shutdown_seconds: float | None) -> Trial:
        """`shutdown_seconds`: None if the guest did not shut down well."""
        seconds = guest.ready_seconds + (shutdown_seconds or 0.0)
        measurements = measured(guest.ready_seconds, guest.kernel_seconds, shutdown_seconds)
        started, warnings, raw = time.time() - seconds, tuple(guest.warnings), guest.console.text()
        rest = {"measurements": measurements, "warnings": warnings, "raw": raw}
        return new_trial(key, BOOT, guest.path, started, seconds, **rest)


BOOT = (Boot.name, "")  # workload and case
# In the order in which they are performed.
ACTIVITIES: tuple[Activity, ...] = (Migrate(), EndOrCut(), StartAndStop())


def failed_boot(key: TrialKey, started: float, error: str) -> Trial:
    """The trial of guests that did not come up, or were lost in mid-round."""
    first = error.partition("\n")[0]
    return new_trial(key, BOOT, "", started, time.time() - started, status="failed", error=first, raw=error)
