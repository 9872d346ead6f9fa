"""A disk of ours in the user's guest while its disk tests run."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping

from vmtax.attach.entry import Entered
from vmtax.attach.pluggable import DATA
from vmtax.machine.answer import words_of

# Prints the device with that serial number, as soon as the guest has it. Argument: the serial number. Constant text.
FIND = (
    *("sh", "-c"),
    "n=0; while :; do for each in /sys/block/*; do "
    "said=$(cat $each/serial 2> /dev/null || tr -cd '[:alnum:]-' < $each/device/vpd_pg80 2> /dev/null) || continue; "
    'case $said in *"$1") [ -b "/dev/${each##*/}" ] && echo "/dev/${each##*/}" && exit 0 ;; esac; done; '
    "n=$((n+1)); [ $n -le 240 ] || exit 1; sleep 0.25; done",
    "vmtax-find",
)


def why_not(own: Mapping[str, str], named: Mapping[str, str]) -> str | None:
    """Why a disk cannot have its own settings with the named ones in place of some, as libvirt names them; None if it
    can.
    """
    settings = {**own, **named}
    if settings.get("io") == "native" and settings.get("cache", "none") not in ("none", "directsync"):
        how = "name disk.aio too, such as --vary disk.aio=threads" if "io" not in named else "leave out one of them"
        return f"io=native goes with cache none and directsync, not with {settings['cache']}: {how}"
    return None


@contextlib.contextmanager
def plugged_disk(inside: Entered, file: str, named: Mapping[str, str]) -> Iterator[str]:
    """The device in the guest that a file of the domain's host is, with the settings of the VM's own first disk but for
    the named ones, as libvirt calls them.

    Raises DomainError and MachineError.
    """
    vm, name = inside.vm, str(inside.directory / inside.vm.serial(DATA))
    removing = vm.removal_of(name)
    try:  # a second name: the VM may be saved meanwhile, and the first one ends with the run
        plugged = vm.plug_data(name if vm.host.succeeds("ln", file, name) else file, inside.bus, named)
        try:
            said = inside.machine.run(*FIND, vm.serial(DATA))
            yield words_of(inside.machine, "the name of the plugged disk", said, 1)[0]
        finally:
            plugged.undo()
    finally:
        removing.undo()
