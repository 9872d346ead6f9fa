"""Try what plans about disks and networks need of a host (`doctor --try`): each part is made small, used, and removed.

Host and VM can be measured without any of it: an absent part is "missing", with the reason, never "failed".
"""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from pathlib import PurePosixPath

from vmtax.core.checks import Check
from vmtax.core.errors import CannotDo
from vmtax.hypervisor import BootFailed, BootPatience, Credentials, Guest, GuestSpec, Nic, Passed, Tap, boot
from vmtax.machine import Machine, MachineError
from vmtax.machine.answer import whole_of, words_of
from vmtax.machine.local import LocalMachine
from vmtax.machine.tools import named, why_not
from vmtax.network import PEER_ADDRESS, Segment, guest_address
from vmtax.network.segment import PREFIX_LENGTH
from vmtax.network.sriov import LOAD_DRIVERS, VF_MAC, WRITE, Card, free_card
from vmtax.storage.undo import ANY_DEVICE, DETACH, NO_GROUP, NO_POOL, UNMOUNT, WAIT_FOR

FILE_BYTES = 400 * 2**20  # sparse; XFS needs at least 300 MiB
HUGE_PAGES = 4
PATIENCE = BootPatience(ready=40.0)
PATTERN = ("if=/dev/urandom", "bs=64k", "count=4", "conv=fsync", "status=none")
PEER_NAME = "vmtax-peer"  # in /etc/hosts: the machine that answers pings behind a card with virtual functions
FREE_ADDRESS = "10.78.0.77/24"

# Constant texts; names are arguments. The commands succeed if there is nothing to undo. Members of an array must not
# keep its metadata, from which udev would assemble it again. They are found by their files, because somebody else may
# use the loop device by now.
NO_ARRAY = (
    *("sh", "-c"),
    '! test -e "$1" || mdadm --quiet --stop "$1" || exit 1; shift; for file; do losetup -n -O NAME -j "$file"; done | '
    'while read -r loop; do mdadm --quiet --zero-superblock "$loop" 2> /dev/null; done; true',
    "sh",
)
# The count of a single node if there are several: a total would be spread over all nodes, and taken back from others.
# The size is given, because the default size may be 1 GiB.
HUGE_PAGE_COUNT = (
    *("sh", "-c"),
    "for file in /sys/devices/system/node/node*/hugepages/hugepages-2048kB/nr_hugepages "
    "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages; "
    'do ! test -e "$file" || { echo "$file"; exit; }; done; exit 1',
)
# Only if nobody else changed it meanwhile.
GIVE_BACK = ("sh", "-c", '[ "$(cat "$3")" != "$2" ] || printf %s "$1" > "$3"', "sh")


@dataclass(frozen=True, slots=True)
class Parts:
    """What the trials work with."""

    host: Machine
    local: LocalMachine
    directory: PurePosixPath  # our own, on the host
    guest: GuestSpec | None  # a guest that boots there on KVM; None if none does
    credentials: Credentials  # for guests

    @property
    def name(self) -> str:
        """A name for a pool or volume group that no other run uses."""
        return f"vmtax-{self.local.token[:8]}"

    def loop(self, name: str) -> str:
        """A loop device over a new sparse file."""
        path = self.directory / name
        self.host.undo_later(*DETACH, str(path))
        self.host.run("truncate", "-s", str(FILE_BYTES), str(path))
        return self.host.run("losetup", "--find", "--show", str(path)).strip()


def tries(parts: Parts, emit: Callable[[str], None]) -> Iterator[Check]:
    """One check each, yielded as it is made."""
    for name, tools, action in (
        ("ext4", ("mkfs.ext4", "losetup"), lambda: _file_system(parts, "ext4", "-q")),
        ("xfs", ("mkfs.xfs", "losetup"), lambda: _file_system(parts, "xfs", "-q")),
        ("btrfs", ("mkfs.btrfs", "losetup"), lambda: _file_system(parts, "btrfs", "-q")),
        ("LVM", ("lvcreate", "losetup"), lambda: _volume(parts)),
        ("md", ("mdadm", "losetup"), lambda: _array(parts)),
        ("ZFS", ("zpool", "zfs"), lambda: _pool(parts)),
        ("huge pages", (), lambda: _huge_pages(parts.host)),
        ("vhost-net", ("ip",), lambda: _vhost(parts)),
        ("SR-IOV", ("ip",), lambda: _function(parts)),
    ):
        emit(name)
        yield _try(parts.host, name, tools, action)


def _try(host: Machine, name: str, tools: tuple[str, ...], action: Callable[[], str]) -> Check:
    if why := why_not(host, named(tools)):
        return Check("tried", name, "missing", f"{why}; only plans about it take it")
    try:
        return Check("tried", name, "ok", action())
    except (CannotDo, MachineError) as error:
        lines = [line.strip() for line in str(error).partition("\nconsole:")[0].splitlines()]
        return Check("tried", name, "missing", f"does not work: {' '.join(filter(None, lines))[:300]}")


def _written(host: Machine, target: str) -> None:
    host.run("dd", f"of={target}", *PATTERN)
    host.run("dd", f"if={target}", "of=/dev/null", "bs=64k", "count=4", "status=none")


def _file_system(parts: Parts, kind: str, *options: str) -> str:
    host, mount = parts.host, str(parts.directory / f"mount-{kind}")
    loop = parts.loop(f"{kind}.raw")
    host.run(f"mkfs.{kind}", *options, loop)
    host.run("mkdir", mount)
    host.undo_later(*UNMOUNT, mount)
    host.run("mount", "-t", kind, loop, mount)
    _written(host, f"{mount}/file")
    return "made on a loop device, mounted, written and read"


def _volume(parts: Parts) -> str:
    host, loop = parts.host, parts.loop("lvm.raw")
    host.undo_later(*NO_GROUP, parts.name, *ANY_DEVICE)
    host.run("vgcreate", "-q", *ANY_DEVICE, parts.name, loop)
    host.run("lvcreate", "-q", *ANY_DEVICE, "-y", "-L", "64M", "-n", "volume", parts.name)
    _written(host, f"/dev/{parts.name}/volume")
    return "a logical volume was made, written and read"


def _array(parts: Parts) -> str:
    host, device = parts.host, "/dev/md/" + parts.name
    names = ("md1.raw", "md2.raw")
    loops = [parts.loop(name) for name in names]
    host.undo_later(*NO_ARRAY, device, *(str(parts.directory / name) for name in names))
    host.run(
        *("mdadm", "--quiet", "--create", device, "--run", "--level=1", "--raid-devices=2", "--assume-clean"),
        *("--metadata=1.2", "--homehost=any", *loops),
    )
    _written(host, device)
    return "a mirror (RAID 1) of two loop devices was made, written and read"


def _pool(parts: Parts) -> str:
    host, file = parts.host, str(parts.directory / "zfs.raw")
    host.run("truncate", "-s", str(FILE_BYTES), file)
    host.undo_later(*NO_POOL, parts.name)
    # The pool gets no mount point of its own, and is not added to the host's list of pools.
    host.run("zpool", "create", "-o", "cachefile=none", "-O", "mountpoint=none", parts.name, file)
    host.run("zfs", "create", "-V", "64M", f"{parts.name}/volume")
    volume = f"/dev/zvol/{parts.name}/volume"
    host.run(*WAIT_FOR, volume)
    _written(host, volume)
    mount = parts.directory / "dataset"
    host.run("zfs", "create", "-o", f"mountpoint={mount}", f"{parts.name}/dataset")
    _written(host, f"{mount}/file")
    version = words_of(host, "zfs version", host.run("zfs", "version"))[0]
    return f"{version}: a pool, a volume and a dataset were made, written and read"


def _huge_pages(host: Machine) -> str:
    count = host.run(*HUGE_PAGE_COUNT, remedy="the kernel has no huge pages of 2 MiB").strip()
    before = whole_of(host, count, host.read_text(count))
    wanted = before + HUGE_PAGES
    given_back = host.undo_later(*GIVE_BACK, str(before), str(wanted), count)
    host.run(*WRITE, str(wanted), count)
    pages = whole_of(host, count, host.read_text(count))
    if pages < wanted:
        host.run(*WRITE, str(before), count)
        raise CannotDo(f"the kernel has no {HUGE_PAGES} free pages of 2 MiB in one piece")
    given_back.undo()
    return f"{HUGE_PAGES} pages of 2 MiB were set aside and given back"


def _spec(parts: Parts) -> GuestSpec:
    if parts.guest is None:
        raise CannotDo("no guest boots on KVM here")
    return parts.guest


@contextlib.contextmanager
def _booted(parts: Parts, spec: GuestSpec, attach: Callable[[], None] | None = None) -> Iterator[Guest]:
    """Boot a guest, with two attempts: on an emulated host, one may be lost."""
    with contextlib.ExitStack() as stack:

        def up() -> Guest:
            with_patience = boot(parts.host, spec, parts.credentials, parts.local, patience=PATIENCE, attach=attach)
            return stack.enter_context(with_patience)

        try:
            guest = up()
        except BootFailed:
            guest = up()
        yield guest


def _vhost(parts: Parts) -> str:
    """Boot a guest on a bridge whose card is served by the kernel."""
    host, spec = parts.host, _spec(parts)
    host.run("sh", "-c", "test -c /dev/vhost-net || modprobe vhost_net", remedy="load vhost_net")
    segment = Segment(host, f"{parts.local.token[:5]}v")
    segment.add_end("peer", PEER_ADDRESS)
    tap = segment.tap_name()
    spec = replace(spec, name="vhost", cards=(Nic(Tap(tap, vhost=True)),))
    with _booted(parts, spec, attach=lambda: segment.attach(tap)) as guest:
        _ping(guest.machine, "eth1", f"{guest_address(1)}/{PREFIX_LENGTH}", PEER_ADDRESS)
    return "a guest with vhost=on reached its peer over a bridge"


def _function(parts: Parts) -> str:
    """Bind a virtual function to vfio-pci and pass it to a guest."""
    host, spec = parts.host, _spec(parts)
    card = free_card(host)
    functions = Card(host, card)
    functions.up()
    (function,) = functions.functions([VF_MAC])
    addresses = host.try_run("getent", "hosts", PEER_NAME)
    peer = words_of(host, f"getent hosts {PEER_NAME}", addresses.stdout)[0] if addresses.ok else None
    spec = replace(spec, name="vf", cards=(Passed(function),))
    with _booted(parts, spec) as guest:
        guest.machine.run(*LOAD_DRIVERS)
        if peer is None:
            return (
                f"a function of {card} came up in a guest; it was not pinged: no {PEER_NAME} in the host's /etc/hosts"
            )
        _ping(guest.machine, "eth1", FREE_ADDRESS, peer)
    return f"a function of {card}, bound to vfio-pci, reached {peer} from a guest"


def _ping(machine: Machine, nic: str, address: str, peer: str) -> None:
    machine.run("ip", "-batch", "-", input=f"address add {address} dev {nic}\nlink set {nic} up\n")
    machine.run("busybox", "ping", "-c", "3", "-w", "20", peer, timeout=30)
