"""A directory of the host that a guest mounts in place of a disk: virtiofsd's, or QEMU's own server of 9p."""

from __future__ import annotations

import contextlib
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from vmtax.core.machines import first_line
from vmtax.core.records import Treatment
from vmtax.design.disk import DiskSettings, Share
from vmtax.hypervisor import BootFailed, Guest
from vmtax.hypervisor.confine import Reach, alone, image_program
from vmtax.hypervisor.spec import TAG, SharedDirectory
from vmtax.machine import Machine
from vmtax.storage import Backing
from vmtax.testbed.host import needs
from vmtax.testbed.parts.part import Order, Part, Request
from vmtax.testbed.parts.serving import place_of_socket, until_it_serves
from vmtax.testbed.session.examine import is_root
from vmtax.testbed.subjects.provisioned import Provisioned

_numbers = itertools.count(1)
MOUNT = "/run/vmtax-share"  # in the guest
# Root's capabilities with which virtiofsd acts for any user of the guest in the directory that it reaches, and the one
# with which it gives up all others. It insists on two more, for device files and files' capabilities, unless its
# command line takes them away.
CAPABILITIES = (
    "CAP_CHOWN",
    "CAP_DAC_OVERRIDE",
    "CAP_FOWNER",
    "CAP_FSETID",
    "CAP_SETGID",
    "CAP_SETPCAP",
    "CAP_SETUID",
)
WITHOUT = "--modcaps=-mknod:-setfcap"
DAEMON = "/usr/libexec/virtiofsd"  # of the image
MODULES = ("9pnet_virtio", "9p")  # virtiofs is built into the kernel
# The largest message that the transport has; by default, requests of a larger block would be several.
MESSAGE_BYTES = 512_000
ALIKE = "disk.share: virtiofsd, and QEMU as a server of 9p, use the host's page cache, as disk.cache=writeback does."


@dataclass(frozen=True, slots=True)
class SharedFile:
    """The disk under test as a file in the guest; offered in place of a disk."""

    path: str
    fresh: str | None  # a file that was never written; None: none is needed


class SharingPart(Part):
    """The file under test in a directory that the guest mounts."""

    def lacking(self, request: Request) -> Mapping[str, str]:
        shared = {each.name: settings(each).share for each in request.guests if settings(each).is_shared}
        if not shared:
            return {}
        unfit = needs.with_own_disk(request.plan)
        return {
            name: why
            for name, share in shared.items()
            if (why := _why_not(request, share) or (unfit and f"disk.share={share}: {unfit} needs a guest with a disk"))
        }

    def notes(self, request: Request) -> Sequence[str]:
        return [ALIKE] if any(settings(each).is_shared for each in request.guests) else []

    def shape(self, on: Provisioned, treatment: Treatment, order: Order, stack: contextlib.ExitStack) -> Order:
        share = settings(treatment).share
        if share is Share.NONE or on.disks is None or not on.fills_disks:
            return order
        disk, fresh = on.disks.of(treatment, order.number), on.disks.fresh(treatment, order.number)
        if fresh is not None:
            stack.callback(fresh.remove)
        files = [disk, *([fresh.disk] if fresh else [])]
        user = None if share.is_virtiofs else on.guests.qemu.user
        directory = _directory(on.host, files, user, stack)
        served = SharedDirectory(share, str(directory))
        if share.is_virtiofs:
            served = replace(served, socket=_serve(on, directory, share, order.number, stack))
        found = SharedFile(_inside(disk), _inside(fresh.disk) if fresh else None)

        def mount(guest: Guest) -> SharedFile:
            _mount(guest, share)
            return found

        return replace(order, spec=replace(order.spec, shares=(served,))).then(mount)


def settings(treatment: Treatment) -> DiskSettings:
    """Those of a treatment's disk."""
    return DiskSettings.of(treatment.levels)


def _why_not(request: Request, share: Share) -> str:
    if not is_root(request.host):
        return f"disk.share={share} needs root on the host: its server acts for any user of the guest"
    refused = request.qemu.why_no_share(request.host, share) if request.qemu is not None else None
    return f"disk.share={share}: {refused}" if refused else ""


def _inside(disk: Backing) -> str:
    return f"{MOUNT}/{disk.path.name}"


def _serve(on: Provisioned, directory: PurePosixPath, share: Share, number: int, stack: contextlib.ExitStack) -> str:
    """Start virtiofsd for one guest; returns its socket. Raises MachineError if it does not serve."""
    host = on.host
    socket = place_of_socket(host, f"share-{number}", stack)
    reach = Reach(write=(str(directory), str(socket.parent)))
    start = image_program(
        on.tree, DAEMON, reach, *alone(root=True), capabilities=CAPABILITIES, bubblewrap=on.placed.bubblewrap
    )
    options = ("--shared-dir", str(directory), "--cache", share.cache)
    process = host.start(*start, "--socket-path", str(socket), "--sandbox", "none", WITHOUT, *options)
    stack.callback(process.stop)
    until_it_serves(host, process, socket, "virtiofsd")
    return str(socket)


def _directory(host: Machine, files: Sequence[Backing], user: int | None, stack: contextlib.ExitStack) -> PurePosixPath:
    """A directory with a second name of each of these files and nothing else, so that a guest reaches no other disk of
    the run; no other user of the host enters it, for a guest can leave setuid programs there.

    `user`: that of QEMU, which serves 9p, and owns the files until the guest has ended; None: root stays it
    """
    paths = [str(each.path) for each in files]
    directory = files[0].path.with_name(f"shared{next(_numbers)}")
    stack.callback(host.remove_later(directory).undo)
    host.run("mkdir", "-m", "700", str(directory))
    host.run("ln", *paths, str(directory))
    if user is not None:
        stack.callback(host.try_run, "chown", "0:0", *paths)
        # Opened by root, without a right to what is another user's, and then used by that user
        host.run("chown", f"0:{user}", str(directory))
        host.run("chmod", "770", str(directory))
        host.run("chown", f"{user}:{user}", *paths)
    return directory


def _mount(guest: Guest, share: Share) -> None:
    """Raises BootFailed if the guest cannot mount it."""
    words = ["-t", share.protocol]
    if not share.is_virtiofs:
        words += ["-o", f"trans=virtio,version=9p2000.L,msize={MESSAGE_BYTES},cache={share.cache}"]
        guest.machine.try_run("modprobe", "-a", *MODULES)
    guest.machine.run("mkdir", "-p", MOUNT)
    mounted = guest.machine.try_run("mount", *words, TAG, MOUNT)
    if not mounted.ok:
        kernel = guest.machine.try_run("dmesg").stdout.strip().splitlines()[-1:]
        why = "; ".join([first_line(mounted.stderr), *kernel])
        raise BootFailed(f"{guest.path}: disk.share={share} cannot be mounted: {why}")
