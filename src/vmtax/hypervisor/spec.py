"""What a guest is, and the QEMU command line that says so. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import PurePosixPath
from string import ascii_lowercase
from typing import Any, Literal

from vmtax.hypervisor.confine import TUN, Reach
from vmtax.hypervisor.qemu.detect import Qemu

ROOT_ID = "root"
DATA_ID = "data"
FRESH_ID = "fresh"
THREAD_ID = "thread"
CONTROLLER_ID = "scsi"
READY = "vmtax: ready"  # what the guest's init prints when sshd listens
# Where Linux finds a data disk that is no virtio disk: those share their letters with the root image and its layers.
DATA_DEVICES = {"virtio-scsi": "/dev/sda", "ide": "/dev/sda", "sata": "/dev/sda", "nvme": "/dev/nvme0n1"}
# Run in a guest: a line for each disk, the kernel's name and the serial number, which is the name of its drive.
BY_SERIAL = (
    *("sh", "-c"),
    "for file in /sys/block/sd?/device/vpd_pg80 /sys/block/nvme*/device/serial /sys/block/vd*/serial; do "
    'test -r "$file" && disk=${file#/sys/block/} && echo "${disk%%/*} $(tr -dc a-z < "$file")"; done; true',
)
DATA_MODULES = {
    "virtio": (),
    "virtio-scsi": ("virtio_scsi", "sd_mod"),
    "ide": ("ata_piix", "sd_mod"),
    "sata": ("ahci", "sd_mod"),
    "nvme": ("nvme",),
}
# The older PC's IDE and the newer one's AHCI controller take the same disks; _machine chooses between them.
DATA_DRIVERS = {
    "virtio": "virtio-blk-pci",
    "virtio-scsi": "scsi-hd",
    "ide": "ide-hd",
    "sata": "ide-hd",
    "nvme": "nvme",
}
# QEMU's cache modes as its block layer knows them: past the page cache, flushes ignored, flushed after each write.
CACHE = {
    "none": (True, False, False),
    "writeback": (False, False, False),
    "writethrough": (False, False, True),
    "directsync": (True, False, True),
    "unsafe": (False, True, False),
}
THREADED = ("virtio", "virtio-scsi")  # buses that take an iothread and several queues


@dataclass(frozen=True, slots=True)
class Drive:
    """The disk under test, as QEMU on the parent sees it."""

    path: str  # file or block device on the parent
    bus: str = "virtio"  # "virtio" (virtio-blk), "virtio-scsi", "ide", "sata" or "nvme"
    cache: str = "none"  # QEMU's cache=
    aio: str = "native"  # QEMU's aio=
    format: str = "raw"  # "raw" or "qcow2"
    is_device: bool = False
    iothread: bool = False  # a thread of its own instead of QEMU's main loop; virtio buses only
    queues: int = 0  # of a virtio bus; 0: one for each vCPU, QEMU's default
    discard: str = "ignore"  # "unmap": what the guest discards is given back to the parent
    iops_limit: int = 0  # reads and writes that QEMU lets through in a second; 0: no limit

    @staticmethod
    def of_levels(path: str, levels: Mapping[str, str], *, is_device: bool = False) -> Drive:
        """A treatment's levels of `disk.*`; what is not named keeps the default of a Drive."""
        queues = levels.get("disk.queues", "auto")
        return Drive(
            path,
            bus=levels.get("disk.bus", "virtio"),
            cache=levels.get("disk.cache", "none"),
            aio=levels.get("disk.aio", "native"),
            format=levels.get("disk.format", "raw"),
            is_device=is_device,
            iothread=levels.get("disk.iothread") == "on",
            queues=0 if queues == "auto" else int(queues),
            discard=levels.get("disk.discard", "ignore"),
        )

    @property
    def direct(self) -> bool:
        """Whether QEMU opens it with O_DIRECT."""
        return CACHE[self.cache][0]


@dataclass(frozen=True, slots=True)
class GuestSpec:
    """Everything that decides how a guest runs."""

    name: str  # the last part of its path: "vm"
    vcpus: int
    memory_bytes: int
    accelerator: Literal["kvm", "tcg"]
    qemu: Qemu  # the parent's
    kernel: str  # on the parent
    initrd: str  # on the parent, without credentials
    root: str  # the read-only root image, file or block device on the parent
    layers: tuple[str, ...] = ()  # erofs files or devices on the parent, laid over the root; a later one is above
    data: Drive | None = None
    fresh: Drive | None = None  # one more like it, never written
    tap: str | None = None  # an existing tap interface on the parent for the network under test
    vhost: bool = False  # that card is served by the host's kernel
    passed: tuple[str, ...] = ()  # PCI addresses of devices bound to vfio-pci, given to the guest
    mac: str = "52:54:00:76:74:01"  # of that network's card; a carrier and its guest are on one segment
    forwards: tuple[int, ...] = ()  # guest TCP ports to reach from the parent's loopback, besides ssh
    mitigations: Literal["auto", "off"] = "auto"  # the guest kernel's own
    preallocated: bool = False  # QEMU takes all of the guest's memory at its start
    talkative: bool = False  # the kernel tells its progress on the console: for the KVM probe
    within: tuple[str, ...] = ()  # what starts a command in the cgroup that QEMU is to run in; (): in ours

    @property
    def layer_devices(self) -> tuple[str, ...]:
        """What the guest calls its layers: virtio disks like the root, and right behind it."""
        return tuple(_virtio_disk(number) for number in range(1, 1 + len(self.layers)))

    @property
    def data_device(self) -> str | None:
        """What the guest calls its data disk where that is the only one of its bus; None where it has none.

        Two of a bus may change places: Linux looks at them at the same time. `BY_SERIAL` tells them apart.
        """
        if self.data is None:
            return None
        return DATA_DEVICES.get(self.data.bus) or _virtio_disk(1 + len(self.layers))


def _virtio_disk(number: int) -> str:
    """Linux's name of a virtio disk; they are found in the order of the command line, the root first, which is 0."""
    return f"/dev/vd{ascii_lowercase[number]}"


def command_line(spec: GuestSpec, initrd: PurePosixPath, console: PurePosixPath) -> tuple[str, ...]:
    """The argv. `initrd` holds this run's credentials in front of the image's; QMP is on standard input and output."""
    # What pins memory for a device may pin more of it later, which only root may do without a limit.
    qemu = spec.qemu.for_guest(reach(spec, initrd, console), keeps_user=bool(spec.passed))
    return (
        # Nothing that was not asked for: no default devices, no configuration file of the user's.
        *(*spec.within, *qemu, "-name", spec.name, "-nodefaults", "-no-user-config", "-display", "none"),
        # A panicking guest asks for a reboot (panic=-1): then QEMU ends, which is how we learn of it.
        "-no-reboot",
        *("-machine", _machine(spec), *cpu_arguments(spec.accelerator)),
        *("-smp", str(spec.vcpus), "-m", f"{spec.memory_bytes // 2**20}M"),
        *(("-mem-prealloc",) if spec.preallocated else ()),
        *("-kernel", spec.kernel, "-initrd", str(initrd), "-append", kernel_arguments(spec)),
        *("-serial", f"file:{console}", "-qmp", "stdio"),
        *_root(spec),
        *_data(spec),
        *_network(spec),
    )


def reach(spec: GuestSpec, initrd: PurePosixPath, console: PurePosixPath) -> Reach:
    """What QEMU takes of the parent's files."""
    drives = [drive for drive in (spec.data, spec.fresh) if drive is not None]
    return Reach(
        read=(spec.kernel, str(initrd), *(path for path in (spec.root, *spec.layers) if not is_device(path))),
        write=(str(console), *(drive.path for drive in drives if not drive.is_device)),
        devices=(
            *(path for path in (spec.root, *spec.layers) if is_device(path)),
            *(drive.path for drive in drives if drive.is_device),
            *device_files(spec.accelerator, tap=spec.tap is not None, vhost=spec.vhost),
        ),
    )


def is_device(path: str) -> bool:
    """Of a root image or a layer over it: elsewhere than in /dev they are files."""
    return path.startswith("/dev/")


def device_files(accelerator: Literal["kvm", "tcg"], *, tap: bool, vhost: bool = False) -> tuple[str, ...]:
    """The devices that QEMU itself takes for that."""
    wanted = (("/dev/kvm", accelerator == "kvm"), (TUN, tap), ("/dev/vhost-net", vhost))
    return tuple(path for path, is_wanted in wanted if is_wanted)


def kernel_arguments(spec: GuestSpec) -> str:
    """The guest kernel's command line."""
    words = ["console=ttyS0", "panic=-1"]
    if not spec.talkative:
        words.append("quiet")
    if spec.mitigations == "off":
        words.append("mitigations=off")
    words += [f"vmtax.layer={device}" for device in spec.layer_devices]
    if spec.data and DATA_MODULES[spec.data.bus]:
        words.append(f"vmtax.modules={','.join(DATA_MODULES[spec.data.bus])}")
    return " ".join(words)


def _machine(spec: GuestSpec) -> str:
    return machine_type(spec.data)


def machine_type(data: Drive | None) -> str:
    # Only the older PC has an IDE controller; q35 has AHCI in its place.
    return "pc" if data and data.bus == "ide" else "q35"


def cpu_arguments(accelerator: Literal["kvm", "tcg"]) -> tuple[str, ...]:
    """Accelerator and CPU model."""
    if accelerator == "kvm":
        return ("-accel", "kvm", "-cpu", "host")
    # max includes SVM with nested paging, which TCG emulates: so an emulated guest can carry a nested one.
    return ("-accel", "tcg,thread=multi", "-cpu", "max")


def _root(spec: GuestSpec) -> tuple[str, ...]:
    words: list[str] = []
    for identity, path in ((ROOT_ID, spec.root), *((f"layer{n}", path) for n, path in enumerate(spec.layers))):
        drive = f"if=none,id={identity},format=raw,readonly=on,file={escaped(path)}"
        words += ["-drive", drive, "-device", f"virtio-blk-pci,drive={identity}"]
    return tuple(words)


def _data(spec: GuestSpec) -> tuple[str, ...]:
    return data_arguments(spec.data, spec.fresh) if spec.data else ()


def data_arguments(data: Drive, fresh: Drive | None = None) -> tuple[str, ...]:
    """The disk under test alone, with what it takes beside it: an iothread, a SCSI controller; `fresh`: one more."""
    thread = ("-object", f"iothread,id={THREAD_ID}") if _threaded(data) else ()
    controller: tuple[str, ...] = ()
    if data.bus == "virtio-scsi":
        controller = ("-device", f"virtio-scsi-pci,id={CONTROLLER_ID}{_thread_and_queues(data, 'num_queues')}")
    more = () if fresh is None else (*_drive(fresh, FRESH_ID), "-device", _disk(fresh, FRESH_ID))
    return (*thread, *_drive(data, DATA_ID), *controller, "-device", _disk(data, DATA_ID), *more)


def _drive(data: Drive, identity: str) -> tuple[str, ...]:
    discard = "discard=unmap," if data.discard == "unmap" else ""
    how = f"cache={data.cache},aio={data.aio},{discard}{_throttling(data)}"
    return ("-drive", f"if=none,id={identity},format={data.format},{how}file={escaped(data.path)}")


def _disk(data: Drive, identity: str) -> str:
    # An NVMe device must have a serial number; the others may.
    device = f"{DATA_DRIVERS[data.bus]},drive={identity},serial={identity}"
    if data.bus == "virtio-scsi":
        return f"{device},bus={CONTROLLER_ID}.0"
    if data.bus in ("ide", "sata") and identity == FRESH_ID:
        return f"{device},bus=ide.1"  # a channel, or port, of its own
    return f"{device}{_thread_and_queues(data, 'num-queues')}"


def block_node(data: Drive) -> dict[str, Any]:
    """The arguments of QMP's blockdev-add that open `data` as the command line does."""
    direct, no_flush, _ = CACHE[data.cache]
    cache = {"direct": direct, "no-flush": no_flush}
    driver = "host_device" if data.is_device else "file"
    return {
        "node-name": DATA_ID,
        "driver": data.format,
        "cache": cache,
        "discard": data.discard,
        "file": {"driver": driver, "filename": data.path, "aio": data.aio, "cache": cache, "discard": data.discard},
    }


def _threaded(data: Drive) -> bool:
    return data.iothread and data.bus in THREADED


def _thread_and_queues(data: Drive, queues: str) -> str:
    """Options of the device that has the queues; `queues` is what it calls their number."""
    if data.bus not in THREADED:
        return ""
    thread = f",iothread={THREAD_ID}" if data.iothread else ""
    return thread + (f",{queues}={data.queues}" if data.queues else "")


def _throttling(data: Drive) -> str:
    """QEMU's limit; any size is one operation.

    The largest burst is a second's worth: what a guest that was kept waiting could not ask for, it gets afterwards.
    With QEMU's default, a tenth of that, a busy host would take from the rate.
    """
    limit = data.iops_limit
    return f"throttling.iops-total={limit},throttling.iops-total-max={limit}," if limit else ""


def _network(spec: GuestSpec) -> tuple[str, ...]:
    # Port 0: the kernel picks a free one, and QMP tells which; nobody can take it in between.
    forwards = "".join(f",hostfwd=tcp:127.0.0.1:0-:{port}" for port in (22, *spec.forwards))
    # restrict=on: the guest reaches nothing, and only its parent's loopback reaches it. No ROM: never booted from.
    management = ("-netdev", f"user,id=management,restrict=on{forwards}", "-device", _nic("management"))
    passed = [word for address in spec.passed for word in ("-device", f"vfio-pci,host={address}")]
    if spec.tap is None:
        return (*management, *passed)
    tap = f"tap,id=network,ifname={spec.tap},script=no,downscript=no{',vhost=on' if spec.vhost else ''}"
    return (*management, "-netdev", tap, "-device", f"{_nic('network')},mac={spec.mac}", *passed)


def _nic(netdev: str) -> str:
    return f"virtio-net-pci,netdev={netdev},romfile="


def escaped(path: str) -> str:
    """A path as part of an option: QEMU splits options at commas; a doubled comma is one that is meant."""
    return path.replace(",", ",,")
