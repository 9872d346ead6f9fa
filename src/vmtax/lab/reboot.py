"""Reboot a lab with other kernel arguments; its disks stay, including cached images."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vmtax.core.events import Event, Step
from vmtax.lab.end import gone, stop
from vmtax.lab.home import Lab, LabError, Up
from vmtax.lab.reach import route
from vmtax.lab.start import Wish, start
from vmtax.machine import MachineLost
from vmtax.machine.reader import SshReader

ENDING_SECONDS = 20.0  # for a lab that was asked to shut down


def reboot(one: Lab, arguments: Sequence[str], emit: Callable[[Event], None]) -> Up:
    """Shut it down if it is up, and start it with these arguments in addition to its own. Raises as `start` does.

    If it is killed midway, the lab is off or up, and the next call completes it: whether the lab logs its writes is
    stored beside its disks until it has started.
    """
    one.must_exist()
    up = one.up()
    if up is not None:
        if up.logs_writes:
            one.logs_again.touch(0o600)
        emit(Step("rebooting the lab", " ".join(arguments)))
        try:
            stop(one)
        except LabError:
            if one.up() is not None:
                raise
    link = up.link if up is not None else ""
    wish = Wish(kernel_arguments=tuple(arguments), log_writes=one.logs_again.exists(), link=link)
    return start(one, wish, emit)


def is_off(one: Lab) -> bool:
    """Whether it is off. If it is just shutting down, as after a reboot that was killed, waits until it is off."""
    up = one.up()
    if up is None:
        return True
    reader = SshReader(route(one))
    try:
        reader.log_in()
    except MachineLost:
        return gone(up, ENDING_SECONDS)
    finally:
        reader.close()
    return False
