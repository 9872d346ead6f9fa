"""What `vmtax plan check` says: what a plan can show, and what `run` would say before it asks. Nothing is booted."""

from __future__ import annotations

from dataclasses import replace

from vmtax.cli.app import warn
from vmtax.cli.asked import Measured
from vmtax.cli.running import new_work
from vmtax.cli.work import RunWork, fitted, is_emulated, outlook_of
from vmtax.core.errors import BadInput, CannotDo
from vmtax.experiment.outlook import Line
from vmtax.experiment.preview import look
from vmtax.plan.estimate import check, settled
from vmtax.store import Store
from vmtax.testbed.session import connected

NOT_TRIED = "whether guests boot with KVM is tried when `vmtax run` begins, before it asks"
HERE = "`vmtax run` would say this, and then ask:"
IN_ADVICE = ("note", "budget", "reboots")  # labels of lines that are advice about the plan, too


def checked(plan: str, asked: Measured) -> list[str]:
    """The lines. Raises PlanError and BadUse; what prevents the run on the hosts themselves is a line."""
    work = new_work(plan, asked)
    lines = check(work.plan)
    try:
        here = _here(work)
    except (CannotDo, BadInput) as error:
        return [*lines, f"cannot run: {error}"]
    return [*lines, HERE, *(line for line in here if line not in lines)]


def _here(work: RunWork) -> list[str]:
    """What a run would say on its hosts. Raises what would prevent it: CannotDo and BadInput."""
    testbed = work.options.testbed
    with connected(work.plan.host, warn, testbed) as hosts, Store(reads=True) as store:
        work = fitted(work, hosts)
        places = look(work.plan, hosts, testbed)
        why = next((one.reason for place in places for one in place.accelerators if one.name != "kvm"), "")
        work = replace(work, plan=settled(work.plan, emulated=bool(why) or is_emulated(places)))
        if why and work.or_demo:
            work = work.demonstrated()
        _, expected = outlook_of(store, work, places, why)
        if hosts.existing is not None and hosts.existing.announced:
            expected.append(Line("enters", f"{hosts.existing.name}: {hosts.existing.announced}"))
    lines = [line.text if line.what in IN_ADVICE else f"{line.what}: {line.text}" for line in expected]
    if why and not work.options.testbed.emulate:
        lines.append("it would end there: to measure anyway, vmtax run --emulate")
    return [*lines, *([NOT_TRIED] if work.plan.has_guests and not all(place.accelerators for place in places) else [])]
