"""Work on another machine is waited for as long as it goes on there."""

from __future__ import annotations

import pytest

from tests.integration.conftest import booted
from vmtax.core.machines import Idle
from vmtax.hypervisor import Credentials, GuestSpec
from vmtax.machine.local import LocalMachine

LIMIT = Idle(9.0)
WORK = "end=$(($(date +%s) + 25)); while [ $(date +%s) -lt $end ]; do :; done; echo done"


@pytest.mark.machines
def test_work_in_a_guest_may_take_long_and_what_does_nothing_is_ended_there(
    shared_local: LocalMachine, credentials: Credentials, spec: GuestSpec
) -> None:
    with booted(shared_local, spec, credentials, shared_local) as guest:
        done = guest.machine.try_run("sh", "-c", WORK, timeout=LIMIT)
        assert done.ok and done.stdout == "done\n" and done.seconds > 2 * LIMIT, done
        stuck = guest.machine.try_run("sh", "-c", "echo begun; sleep 600", timeout=LIMIT)
        assert stuck.timed_out and stuck.stdout == "begun\n" and "neither it nor its children" in stuck.stderr
        assert not guest.machine.succeeds("pgrep", "-x", "sleep"), "it was ended there"
