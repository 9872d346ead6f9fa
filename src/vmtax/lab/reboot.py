"""A lab that is booted anew with other kernel arguments; its disks stay, and with them the images in its caches."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from vmtax.core.events import Event, Step
from vmtax.lab.end import stop
from vmtax.lab.home import Lab, LabError, Up
from vmtax.lab.start import Wish, start


def reboot(one: Lab, arguments: Sequence[str], emit: Callable[[Event], None]) -> Up:
    """Shut it down if it is up, and start it with these arguments beside its own. Raises as `start` does.

    Where it is killed on the way, the lab is off or up, and the next call does the rest.
    """
    one.must_exist()
    if one.up() is not None:
        emit(Step("rebooting the lab", " ".join(arguments)))
        try:
            stop(one)
        except LabError:
            if one.up() is not None:
                raise
    return start(one, Wish(kernel_arguments=tuple(arguments)), emit)
