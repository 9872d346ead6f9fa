"""Read everything that the doctor needs to know about a host, in some twenty quick commands that leave nothing."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from vmtax.core.records import Disturbance, Json
from vmtax.hypervisor import Qemu, QemuError, remembered
from vmtax.image import cache
from vmtax.image.build import TOOLS as BUILD_TOOLS
from vmtax.image.cache import Image
from vmtax.image.place import Placed, find_placed
from vmtax.machine import CommandFailed, Reader, tools
from vmtax.machine.answer import counts_of
from vmtax.machine.reader import LocalReader
from vmtax.machine.rights import Rights, ask
from vmtax.machine.tools import FoundTool
from vmtax.meter import pressure
from vmtax.meter.disk import disk_facts
from vmtax.meter.facts import read_facts
from vmtax.meter.neighbours import other_vms
from vmtax.meter.text import Files, parse_files, whole
from vmtax.storage import DISK_DIRECTORY
from vmtax.testbed.host.cpus import CpuTopology
from vmtax.testbed.host.cpus import read as read_topology
from vmtax.testbed.session.examine import enters

LOAD_SECONDS = 1.0  # between the two readings of the load
CPU = "/sys/devices/system/cpu"

# Constant texts for the remote shell; names are arguments.
SYSTEM = ("sh", "-c", "uname -sm; id -u")
CACHE_SPACE = (
    *("sh", "-c"),
    'd=${XDG_CACHE_HOME:-$HOME/.cache}/vmtax/images; while ! test -e "$d"; do d=$(dirname "$d"); done; '
    'stat -f -c "%a %S" "$d"',
)
MORE_FILES = (
    *("sh", "-c"),
    'exec grep -s -a -H "" /proc/meminfo /proc/self/cgroup /etc/os-release '
    f"{CPU}/cpu[0-9]*/thermal_throttle/*_throttle_count",
)
# Tools that the host that runs vmtax must have.
TOOLS_HERE = ("ssh", "ssh-keygen")


@dataclass(frozen=True, slots=True)
class Load:
    """The load by other processes during one second."""

    cpus: int
    during: Disturbance


@dataclass(frozen=True, slots=True)
class HostReadings:
    """Readings of one host under test, and of the host that runs vmtax."""

    host: str  # "local" or "ssh://..."
    system: str  # "Linux x86_64"; empty: unknown
    user: int | None  # user id
    facts: Json  # see meter.facts
    files: Files  # from MORE_FILES
    tools: Mapping[str, FoundTool]  # those of machine/tools.py that exist
    tools_here: frozenset[str]  # those of TOOLS_HERE and of the image's build that exist
    topology: CpuTopology  # the CPUs that may be used there
    rights: Rights  # what was tried there
    rights_here: Rights  # what was tried on the host that runs vmtax
    qemu: Qemu | None
    qemu_error: str  # why there is no usable QEMU
    image: Image | None  # on the host that runs vmtax
    placed: Placed | None  # the image on the host under test
    kvm_failure: str | None  # why no guest boots on KVM; empty: one does; None: not tried since the host's boot
    disk: Json  # see meter.disk, for the directory of disks under test
    cache_free: int | None  # bytes, where images are stored on the host under test
    vmms: tuple[str, ...] | None  # "qemu-system-x86 (pid 812)"; None: unknown
    load: Load | None

    @property
    def is_local(self) -> bool:
        return self.host == "local"

    @property
    def option(self) -> str:
        """The option that the commands of a remedy need to refer to this host."""
        return "" if self.is_local else f" --host {self.host}"


def read(reader: Reader, host: str, sleep: Callable[[float], None] = time.sleep) -> HostReadings:
    """Raises only MachineLost: what cannot be read is unknown."""
    system, _, user = reader.try_run(*SYSTEM).stdout.strip().partition("\n")
    facts = read_facts(reader)
    tried = ("kvm", "tun", "mount", "caches", "programs", f"directory={DISK_DIRECTORY}")
    qemu, qemu_error = _qemu(reader)
    image = cache.current()
    return HostReadings(
        host=host,
        system=system,
        user=whole(user),
        facts=facts,
        files=parse_files(reader.try_run(*MORE_FILES).stdout),
        tools=tools.read(reader, tools.TOOLS),
        tools_here=frozenset(filter(shutil.which, (*TOOLS_HERE, *BUILD_TOOLS))),
        topology=read_topology(reader),
        rights=ask(reader, *tried, command=enters(root=whole(user) == 0)),
        rights_here=rights_here(),
        qemu=qemu,
        qemu_error=qemu_error,
        image=image,
        placed=_placed(reader, host, image),
        kvm_failure=remembered(str(facts["boot_id"]), qemu) if qemu else None,
        disk=disk_facts(reader, DISK_DIRECTORY),
        cache_free=free_bytes(reader.try_run(*CACHE_SPACE).stdout),
        vmms=other_vms(reader),
        load=_load(reader, sleep),
    )


def rights_here() -> Rights:
    """What was tried on the host that runs vmtax."""
    return ask(LocalReader(), "ssh")


def free_bytes(text: str) -> int | None:
    """Parse "blocks block-size"."""
    found = counts_of(text, ("blocks", "size"))
    return int(found["blocks"] * found["size"]) if found else None


def _qemu(reader: Reader) -> tuple[Qemu | None, str]:
    try:
        return Qemu.probe(reader), ""
    except QemuError as error:
        return None, str(error)


def _placed(reader: Reader, host: str, image: Image | None) -> Placed | None:
    if image is None:
        return None
    if host == "local":
        return Placed(str(image.root), str(image.vmlinux), str(image.initrd), str(image.tree))
    return find_placed(reader, image)


def _load(reader: Reader, sleep: Callable[[float], None]) -> Load | None:
    try:
        before = pressure.read(reader)
        sleep(LOAD_SECONDS)
        after = pressure.read(reader)
    except CommandFailed:
        return None
    return Load(after.cpus, pressure.between(before, after))
