"""The command line of QEMU for a guest. Pure."""

from __future__ import annotations

from collections import Counter
from pathlib import PurePosixPath

from vmtax.hypervisor.base import GuestSpec
from vmtax.hypervisor.confine import TUN, VFIO, Reach
from vmtax.hypervisor.qemu import drives
from vmtax.hypervisor.qemu.cards import card_arguments, forward
from vmtax.hypervisor.qemu.drives import MODULES, MOST_DISKS, disk_arguments, escaped, image_argument, machine_type
from vmtax.hypervisor.qemu.parts import (
    accelerator_words,
    cpu_arguments,
    cpu_count,
    free_cpus,
    memory_arguments,
    memory_options,
    timer_options,
)
from vmtax.hypervisor.qemu.shares import reached, share_arguments
from vmtax.hypervisor.spec import Passed, Tap, passes_device

ROOT_ID = "root"


def why_not(spec: GuestSpec) -> str | None:
    """Why no QEMU can run such a guest, in one line; None if it can."""
    names = [disk.name for disk in spec.disks], [card.name for card in spec.cards if not isinstance(card, Passed)]
    for what, counted in zip(("disks", "network cards"), map(Counter, names), strict=True):
        if twice := [name for name, count in counted.items() if count > 1]:
            return f"two of its {what} are called {twice[0]}; each must have a name of its own"
    buses = Counter(disk.settings.bus for disk in spec.disks)
    for bus, most in MOST_DISKS.items():
        if buses[bus] > most:
            return f"it has {buses[bus]} disks on {bus}, which takes {most}; put the others on another bus"
    if buses["ide"]:
        has_port = any(not isinstance(card, Passed) and card.has_port for card in spec.cards)
        lacking = "SATA" if buses["sata"] else "IOMMU" if spec.iommu else "PCI Express port" if has_port else ""
        if lacking:
            return f"only the older PC has IDE, and that has no {lacking}; put its IDE disks on another bus"
    if spec.settings.topology == "threads" and spec.vcpus % 2:
        return f"cpu.topology=threads takes an even number of CPUs, not {spec.vcpus}"
    if spec.memory_bytes % (spec.settings.backing.page_bytes or 1):
        return (
            f"memory.backing={spec.settings.backing} takes memory in multiples of that, not {spec.memory_bytes} bytes"
        )
    if spec.incoming is not None and buses["nvme"]:
        return "QEMU cannot load a saved guest that has an NVMe disk; put it on another bus"
    return None


def arguments(spec: GuestSpec, initrd: PurePosixPath, console: PurePosixPath) -> tuple[str, ...]:
    """The whole argv without the command that starts QEMU.

    `initrd` holds this run's credentials followed by the image's initramfs. QMP is on standard input and output or, for
    a guest that outlives us, on a socket.
    """
    # The IOMMU remaps interrupts, which requires that KVM does not handle all of them itself.
    split = ",kernel-irqchip=split" if spec.iommu else ""
    machine = machine_type(spec.disks) + split + timer_options(spec) + memory_options(spec)
    return (
        # Only what is requested: no default devices, no configuration file of the user's.
        *("-name", f"{spec.name},debug-threads=on", "-nodefaults", "-no-user-config", "-display", "none"),
        # A panicking guest reboots (panic=-1): QEMU then ends, which tells us.
        "-no-reboot",
        *("-machine", machine, "-accel", accelerator_words(spec.accelerator)),
        *("-cpu", cpu_arguments(spec.settings.model, spec.accelerator, spec.settings.hyperv)),
        *(("-device", "intel-iommu,intremap=on") if spec.iommu else ()),
        *("-smp", cpu_count(spec), *memory_arguments(spec)),
        *("-kernel", spec.kernel, "-initrd", str(initrd), "-append", kernel_arguments(spec)),
        # Commas in the values of -serial and -incoming are not special.
        *("-serial", f"file:{console}"),
        *_monitor(spec),
        *_image(ROOT_ID, spec.root),
        *disk_arguments(spec.disks),
        # Last, so that disks have the same names with and without layers.
        *(word for number, path in enumerate(spec.layers) for word in _image(f"layer{number}", path)),
        *(word for number, path in enumerate(spec.packs) for word in _image(f"pack{number}", path)),
        *share_arguments(spec.shares),
        *(word for _, device in spec.settings.options("device") for word in ("-device", device)),
        *_network(spec),
        *(("-incoming", _incoming(spec.incoming)) if spec.incoming is not None else ()),
    )


def reach(spec: GuestSpec, initrd: PurePosixPath, console: PurePosixPath) -> Reach:
    """The parent's files that QEMU needs."""
    images = (spec.root, *spec.layers, *spec.packs)
    taps = [card.behind for card in spec.cards if not isinstance(card, Passed) and isinstance(card.behind, Tap)]
    wanted = (
        *(("/dev/kvm", spec.accelerator == "kvm"), (TUN, any(not tap.device for tap in taps))),
        *(("/dev/vhost-net", any(tap.vhost for tap in taps)), (VFIO, passes_device(spec.cards))),
    )
    disks = [drives.reached(disk) for disk in spec.disks]
    state = (spec.incoming,) if spec.incoming is not None and _is_file(spec.incoming) else ()
    return Reach(
        read=(
            *(spec.kernel, str(initrd), *(path for path in images if not is_device(path)), *state),
            *dict.fromkeys(path for disk in spec.disks for path in disk.beneath),
        ),
        write=(
            *(str(console), *(path for files, _ in disks for path in files)),
            *(disk.log for disk in spec.disks if disk.log),
            *(disk.spare for disk in spec.disks if disk.spare),
            *((str(spec.lasting.runtime),) if spec.lasting else ()),
            *((spec.meeting,) if spec.meeting else ()),
            *reached(spec.shares),
        ),
        devices=(
            *filter(is_device, images),
            *(path for _, devices in disks for path in devices),
            *(path for path, is_wanted in wanted if is_wanted),
        ),
    )


def is_device(path: str) -> bool:
    """Whether a root image or layer is a device: files are never below /dev."""
    return path.startswith("/dev/")


def kernel_arguments(spec: GuestSpec) -> str:
    """The guest kernel's command line."""
    words = ["console=ttyS0", "panic=-1"]
    if not spec.talkative:
        words.append("quiet")
    words += [value for _, value in spec.settings.options("kernel")]
    if free := free_cpus(spec):
        words.append(f"isolcpus={','.join(map(str, free))}")  # no process runs there unless it asks for that CPU
    words += spec.kernel_words
    words += [f"vmtax.layer={device}" for device in spec.layer_devices]
    modules = [module for disk in spec.disks for module in MODULES[disk.settings.bus]]
    if modules:
        words.append(f"vmtax.modules={','.join(dict.fromkeys(modules))}")
    return " ".join(words)


def _monitor(spec: GuestSpec) -> tuple[str, ...]:
    if spec.lasting is None:
        return ("-qmp", "stdio")
    socket = escaped(str(spec.lasting.socket))
    return ("-qmp", f"unix:{socket},server=on,wait=off", "-pidfile", str(spec.lasting.pid_file))


def _image(name: str, path: str) -> tuple[str, ...]:
    return ("-drive", image_argument(name, path), "-device", f"virtio-blk-pci,drive={name}")


def _is_file(incoming: str) -> bool:
    return incoming.startswith("/")


def _incoming(incoming: str) -> str:
    return f"file:{incoming}" if _is_file(incoming) else incoming


def _network(spec: GuestSpec) -> tuple[str, ...]:
    # restrict=on: the guest reaches nothing, and only its parent's loopback reaches it. No ROM: it never boots from it.
    management = f"user,id=management,restrict=on{forward(22)}"
    words = ["-netdev", management, "-device", "virtio-net-pci,netdev=management,romfile="]
    return (*words, *card_arguments(spec.cards))
