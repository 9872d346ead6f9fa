"""Translate a command line of QEMU, as `ps`, /proc/PID/cmdline, a log of libvirt or a bug report shows it.

Source of options: qemu-system-x86_64(1), of QEMU 11.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any

from vmtax.existing.guest import (
    ExistingCard,
    ExistingDisk,
    ExistingGuest,
    NoGuest,
    Remarks,
    shown,
    topology_level,
    volume_levels,
)
from vmtax.existing.qemu_words import QemuOptions, options_of, settings_of, size_of

# They change nothing that is measured, or have their counterpart in our guest. No values of these are printed.
NEUTRAL = frozenset(
    (
        *(
            "name",
            "uuid",
            "id",
            "S",
            "daemonize",
            "nographic",
            "display",
            "vga",
            "vnc",
            "spice",
            "sdl",
            "gtk",
            "curses",
        ),
        *("nodefaults", "no-user-config", "nodefconfig", "no-reboot", "no-shutdown", "action", "boot", "rtc", "k", "L"),
        *("monitor", "mon", "qmp", "qmp-pretty", "serial", "parallel", "chardev", "pidfile", "msg", "sandbox", "runas"),
        *("chroot", "D", "d", "trace", "add-fd", "set", "global", "smbios", "fw_cfg", "secret", "usb", "no-acpi", "g"),
        *("tpmdev", "audiodev", "soundhw", "watchdog", "watchdog-action", "enable-kvm", "accel", "machine", "M", "m"),
        *("smp", "cpu", "drive", "blockdev", "device", "netdev", "nic", "net", "hda", "hdb", "hdc", "hdd", "cdrom"),
        *(
            "fda",
            "fdb",
            "object",
            "mem-path",
            "no-hpet",
            "debugcon",
            "full-screen",
            "no-quit",
            "iscsi",
            "run-with",
        ),
        *(
            "nodefaults",
            "no-fd-bootchk",
            "enable-fips",
            "compat",
            "readconfig-none",
            "kernel",
            "initrd",
            "append",
            "dtb",
        ),
    )
)
DRIVE_KEYS = frozenset(
    (
        *("file", "format", "if", "id", "cache", "aio", "discard", "detect-zeroes", "media", "index", "serial", "unit"),
        *("readonly", "read-only", "werror", "rerror", "bus", "snapshot", "node-name", "addr", "boot", "driver"),
    )
)
MACHINE_KEYS = frozenset(
    (
        *("type", "accel", "usb", "dump-guest-core", "mem-merge", "vmport", "pflash0", "pflash1", "memory-backend"),
        *("hpet", "kernel_irqchip", "kernel-irqchip", "smm", "graphics", "acpi", "pcspk-audiodev", "i8042"),
        *("smbios-entry-point-type",),
    )
)
# Devices that change nothing that is measured.
NEUTRAL_DEVICES = re.compile(
    r"(pcie?-(root-port|bridge|pci-bridge)|pci-bridge|pcie-pci-bridge|i82801b11-bridge|ioh3420|ich9-|piix\d|.*-uhci|.*-xhci"
    r"|.*-ehci|nec-usb|qemu-xhci|usb-|virtio-serial|virtserialport|virtconsole|isa-|VGA|qxl|virtio-vga|virtio-gpu|cirrus"
    r"|bochs|ramfb|vmware-svga|intel-hda|ich9-intel-hda|hda-|AC97|ES1370|virtio-rng|pvpanic|tpm-|i6300esb|ib700|virtio-keyboard"
    r"|virtio-mouse|virtio-tablet|virtio-input|vmgenid|vmcoreinfo|ccid|ide-cd|scsi-cd|floppy|ahci|ide-drive-none|x3130|xio3130)"
)
BLOCK_DEVICES = {
    "virtio-blk": "virtio",
    "scsi-hd": "virtio-scsi",
    "scsi-disk": "virtio-scsi",
    "scsi-block": "virtio-scsi",
    "ide-hd": "sata",
    "ide-drive": "sata",
    "nvme": "nvme",
}
NETWORK_DEVICES = ("virtio-net", "e1000", "rtl8139", "vmxnet3", "ne2k", "pcnet", "i82", "tulip", "igb", "usb-net")
INTERFACES = {"virtio": "virtio", "scsi": "virtio-scsi", "ide": "ide", "sd": "sata", "none": "", "floppy": "cd"}
FORMATS = ("raw", "qcow2", "vmdk", "vdi", "vhdx", "vpc", "qed", "luks", "qcow", "parallels", "cloop", "dmg", "bochs")


@dataclass
class _Node:
    """A block device of the host's side: a format, or a file below one."""

    driver: str
    settings: dict[str, Any]
    is_drive: bool = False


def parse(text: str) -> ExistingGuest:
    """The guest that this command line starts. Raises NoGuest."""
    line = options_of(text)
    if line.arch not in ("", "x86_64", "i386"):
        raise NoGuest(f"a guest for {line.arch}; guests for x86_64 can be measured")
    remarks = Remarks()
    machine = [settings for value in line.all("machine", "M") for settings in [settings_of(value, "type")]]
    merged = {key: value for settings in machine for key, value in settings.items()}
    accelerators = [settings_of(value, "accel").get("accel", "") for value in line.all("accel")]
    accelerators += [merged["accel"]] if "accel" in merged else []
    if any("xen" in accelerator for accelerator in accelerators) or "xen" in merged.get("type", ""):
        raise NoGuest("a guest of Xen, not of KVM")
    is_kvm = line.last("enable-kvm") is not None or any("kvm" in each for each in accelerators)
    if not is_kvm and not re.search(r"(^|/)(qemu-)?kvm\b", text):
        remarks.add(
            "-accel", " ".join(accelerators) or "none", "it may be emulated; our guest has KVM where the host has it"
        )
    memory = _memory(line, merged, remarks)
    vcpus, topology = _smp(line, remarks)
    guest = ExistingGuest(
        "qemu",
        settings_of(line.last("name") or "", "guest").get("guest", "guest"),
        vcpus,
        memory,
        {**topology, **dict(_guest_levels(line, merged, remarks))},
        tuple(_disks(line, remarks)),
        tuple(_cards(line, remarks)),
    )
    _rest(line, merged, remarks)
    disks = [disk for disk in guest.disks if not disk.is_cd]
    if len(disks) > 1:
        remarks.add(
            ", ".join(disk.name for disk in disks), f"{len(disks)} disks", "one is measured: --disk NAME chooses it"
        )
    return replace(guest, remarks=remarks.all())


def _memory(line: QemuOptions, machine: Mapping[str, str], remarks: Remarks) -> int:
    value = line.last("m")
    if value is None:
        remarks.add("-m", "is missing", "QEMU's default of 128 MiB; 256 MiB are measured, the least")
        return 256 * 2**20
    settings = settings_of(value, "size")
    size = size_of(settings.get("size", ""), 2**20)
    if not size:
        raise NoGuest(f"-m {shown('', value)}: must be a size, such as 4G")
    if "maxmem" in settings:
        remarks.add("-m maxmem", settings["maxmem"], "our guest's memory cannot grow")
    # Modules that were plugged in later.
    backends = {each.get("id", ""): each for value in line.all("object") for each in [settings_of(value, "qom-type")]}
    modules = [_device(value) for value in line.all("device")]
    plugged = [backends.get(each.get("memdev", ""), {}) for each in modules if each.get("driver") == "pc-dimm"]
    return size + sum(size_of(each.get("size", ""), 1) or 0 for each in plugged)


def _smp(line: QemuOptions, remarks: Remarks) -> tuple[int, dict[str, str]]:
    settings = settings_of(line.last("smp") or "1", "cpus")
    counts = {}
    for name in ("cpus", "sockets", "cores", "threads", "maxcpus", "dies", "clusters", "modules"):
        if name in settings:
            if not (settings[name].isascii() and settings[name].isdigit() and 0 < int(settings[name]) <= 1024):
                raise NoGuest(f"-smp {name}={shown('', settings[name])}: must be a number from 1 to 1024")
            counts[name] = int(settings[name])
    product = counts.get("sockets", 1) * counts.get("cores", 1) * counts.get("threads", 1) * counts.get("dies", 1)
    cpus = counts.get("cpus") or counts.get("maxcpus") or product
    if counts.get("maxcpus", cpus) > cpus:
        remarks.add("-smp maxcpus", str(counts["maxcpus"]), "no CPU can be added to our guest")
    named = [name for name in ("sockets", "cores", "threads") if name in counts]
    if not named:
        return cpus, {}
    cores = counts.get("cores", max(1, cpus // (counts.get("sockets", 1) * counts.get("threads", 1))))
    level = topology_level(counts.get("sockets", 1), cores, counts.get("threads", 1))
    if level is None or counts.get("dies", 1) > 1:
        remarks.add("-smp", line.last("smp") or "", "is measured as one socket with cores")
        return cpus, {}
    return cpus, {"cpu.topology": level}


def _guest_levels(line: QemuOptions, machine: Mapping[str, str], remarks: Remarks) -> Iterator[tuple[str, str]]:
    settings = settings_of(line.last("cpu") or "qemu64", "model")
    model = settings.pop("model", "qemu64")
    yield "cpu.model", "host" if model in ("host", "max") else model
    for key, value in settings.items():
        if (key, value) not in (("migratable", "on"), ("kvm", "on"), ("check", "on"), ("enforce", "on")):
            remarks.add(f"-cpu {key}", value, "is not translated")
    backends = [settings_of(value, "qom-type") for value in line.all("object")]
    memory = [each for each in backends if each.get("qom-type", "").startswith("memory-backend-")]
    path = line.last("mem-path") or next((each["mem-path"] for each in memory if "mem-path" in each), "")
    kinds = {each["qom-type"] for each in memory}
    if path and "huge" in path.lower():
        yield "memory.backing", "1GiB" if re.search(r"1(G|048576)", path) else "2MiB"
    elif any(each.get("hugetlb") == "on" for each in memory):
        size = next((each.get("hugetlbsize", "") for each in memory if each.get("hugetlb") == "on"), "")
        yield "memory.backing", "1GiB" if size_of(size, 1) == 2**30 else "2MiB"
    elif "memory-backend-memfd" in kinds:
        yield "memory.backing", "memfd"
    elif path:
        remarks.add("-object mem-path", path, "anonymous memory is measured")
    if machine.get("mem-merge") == "off":
        yield "memory.merge", "off"
    if line.last("no-hpet") is not None or machine.get("hpet") == "off":
        yield "guest.hpet", "off"


def _nodes(line: QemuOptions, remarks: Remarks) -> dict[str, _Node]:
    """Block devices by their names, those of -drive included."""
    nodes: dict[str, _Node] = {}
    for value in line.all("blockdev"):
        settings = settings_of(value, "driver")
        name = settings.get("node-name", "")
        nodes[name] = _Node(settings.get("driver", ""), dict(settings))
    return nodes


def _disks(line: QemuOptions, remarks: Remarks) -> Iterator[ExistingDisk]:
    nodes = _nodes(line, remarks)
    devices = [_device(value) for value in line.all("device")]
    drives: dict[str, dict[str, str]] = {}
    for number, (option, value) in enumerate(each for each in line.options if each[0] in ("drive", *_SHORT)):
        settings = settings_of(value, "file") if option == "drive" else {**settings_of(value, "file"), **_SHORT[option]}
        name = settings.get("id") or f"-{option} {number + 1}"
        if settings.get("if") in ("pflash", "mtd"):
            continue
        drives[name] = settings
        bus = INTERFACES.get(settings.get("if", "ide"), "ide")
        if settings.get("media") == "cdrom" or bus == "cd":
            yield ExistingDisk(name, {}, settings.get("file", ""), is_cd=True)
        elif bus:
            bus = "sata" if bus == "ide" and _has_ahci(line) else bus
            yield ExistingDisk(name, dict(_drive_levels(name, settings, bus, {}, remarks)), settings.get("file", ""))
    orders = [int(each["bootindex"]) for each in devices if each.get("bootindex", "").isdigit()]
    for device in devices:
        kind, drive = device.get("driver", ""), device.get("drive", "")
        bus = _bus_of(kind)
        if kind.startswith("vhost-user-blk"):
            remarks.add(f"-device {kind}", device.get("id", ""), "is measured as virtio")
            bus = "virtio"
        if not bus:
            if kind in ("ide-cd", "scsi-cd"):
                yield ExistingDisk(device.get("id") or drive or kind, {}, is_cd=True)
            continue
        if bus == "sata" and (device.get("bus", "").startswith("ide.") and not _has_ahci(line)):
            bus = "ide"
        name = device.get("id") or drive or kind
        is_boot = device.get("bootindex", "").isdigit() and int(device["bootindex"]) == min(orders)
        if drive in drives:
            yield ExistingDisk(
                name,
                dict(_drive_levels(name, drives[drive], bus, device, remarks)),
                drives[drive].get("file", ""),
                is_boot=is_boot,
            )
        elif drive in nodes:
            levels, source = _node_levels(name, nodes, drive, bus, device, remarks)
            yield ExistingDisk(name, levels, source, is_boot=is_boot)
        else:
            if drive:
                remarks.add(
                    f"-device {kind}",
                    f"drive={drive}",
                    "no -drive or -blockdev has that name: its defaults are measured",
                )
            yield ExistingDisk(name, dict(_device_levels(bus, device, remarks)), is_boot=is_boot)


_SHORT: Mapping[str, dict[str, str]] = {
    **{name: {"if": "ide"} for name in ("hda", "hdb", "hdc", "hdd")},
    "cdrom": {"if": "ide", "media": "cdrom"},
    **{name: {"if": "floppy"} for name in ("fda", "fdb")},
}


def _bus_of(device: str) -> str:
    """The level of disk.bus for a device that is a disk; "" if it is none."""
    for name, bus in BLOCK_DEVICES.items():
        if device == name or device.startswith(f"{name}-"):
            return bus
    return ""


def _has_ahci(line: QemuOptions) -> bool:
    machine = settings_of(line.last("machine", "M") or "", "type").get("type", "")
    return "q35" in machine or any(_device(value).get("driver", "").endswith("ahci") for value in line.all("device"))


def _device(value: str) -> dict[str, str]:
    return settings_of(value, "driver")


def _device_levels(bus: str, device: Mapping[str, str], remarks: Remarks) -> Iterator[tuple[str, str]]:
    yield "disk.bus", bus
    if device.get("iothread"):
        yield "disk.iothread", "on"
    queues = device.get("num-queues") or device.get("num_queues")
    if queues and bus == "virtio":
        yield "disk.queues", queues
    for name in ("iothread-vq-mapping.0.iothread", "physical_block_size", "logical_block_size", "queue-size", "scsi"):
        if name in device and not (name == "scsi" and device[name] == "off"):
            remarks.add(f"-device {device.get('driver', '')} {name}", device[name], "is not translated")


def _drive_levels(
    name: str, drive: Mapping[str, str], bus: str, device: Mapping[str, str], remarks: Remarks
) -> Iterator[tuple[str, str]]:
    yield from _device_levels(bus, device, remarks)
    file = drive.get("file", "")
    if file.startswith("/dev/"):
        yield from volume_levels(file).items()
    elif drive.get("format") in ("raw", "qcow2"):
        yield "disk.format", drive["format"]
    elif drive.get("format"):
        remarks.add(f"{name} format", drive["format"], "is measured as raw")
    elif file.endswith(".qcow2"):
        yield "disk.format", "qcow2"
    if re.match(r"[a-z][a-z0-9+.-]+:(?!$)", file) and not file.startswith("json:"):
        remarks.add(f"{name} file", file, "is measured as a file in --disk-dir")
    cache = drive.get("cache")
    yield "disk.cache", cache if cache and cache not in ("off", "none") else "none" if cache else "writeback"
    yield "disk.aio", drive.get("aio", "threads")
    if drive.get("discard") in ("unmap", "on"):
        yield "disk.discard", "unmap"
    zeroes = drive.get("detect-zeroes", "off")
    if zeroes != "off":
        yield "disk.detect_zeroes", zeroes
    for key, value in drive.items():
        if key not in DRIVE_KEYS:
            remarks.add(f"{name} {key}", value, "is not translated")


def _node_levels(
    name: str, nodes: Mapping[str, _Node], drive: str, bus: str, device: Mapping[str, str], remarks: Remarks
) -> tuple[dict[str, str], str]:
    levels = dict(_device_levels(bus, device, remarks))
    chain: list[_Node] = []
    while drive in nodes and nodes[drive] not in chain:
        chain.append(nodes[drive])
        drive = chain[-1].settings.get("file", "")
    # A node may hold the one below it: "file.file.aio".
    said = {re.sub(r"^(file\.)+", "", key): value for node in reversed(chain) for key, value in node.settings.items()}
    drivers = [value for node in chain for key, value in node.settings.items() if re.fullmatch(r"(file\.)*driver", key)]
    form = next((driver for driver in drivers if driver in FORMATS), "raw")
    storage = next((driver for driver in reversed(drivers) if driver not in FORMATS), "file")
    source = said.get("filename", "")
    if source.startswith("/dev/") or storage == "host_device":
        levels.update(volume_levels(source))
    elif form in ("raw", "qcow2"):
        levels["disk.format"] = form
    else:
        remarks.add(f"{name} format", form, "is measured as raw")
    if storage not in ("file", "host_device", "throttle", "copy-on-read"):
        remarks.add(f"{name} driver", storage, "is measured as a file in --disk-dir")
    if "throttle" in drivers:
        remarks.add(f"{name} driver", "throttle", "is measured without a limit")
    direct, no_flush = said.get("cache.direct") == "on", said.get("cache.no-flush") == "on"
    through = device.get("write-cache") == "off"
    levels["disk.cache"] = (
        "unsafe"
        if no_flush
        else ("directsync" if through else "none")
        if direct
        else "writethrough"
        if through
        else "writeback"
    )
    levels["disk.aio"] = said.get("aio", "threads")
    if said.get("discard") in ("unmap", "on"):
        levels["disk.discard"] = "unmap"
    if said.get("detect-zeroes", "off") != "off":
        levels["disk.detect_zeroes"] = said["detect-zeroes"]
    if "backing" in said or any(node.settings.get("backing") for node in chain):
        remarks.add(f"{name} backing", "a chain of files", "is measured as a single file")
    return levels, source


def _cards(line: QemuOptions, remarks: Remarks) -> Iterator[ExistingCard]:
    backends = {
        settings.get("id", ""): settings for value in line.all("netdev") for settings in [settings_of(value, "type")]
    }
    for value in line.all("device"):
        device = _device(value)
        kind = device.get("driver", "")
        if kind.startswith("vfio-pci"):
            remarks.add(
                "-device vfio-pci", device.get("host", ""), "is measured as a virtual function, if it is a network card"
            )
            continue
        if not kind.startswith(NETWORK_DEVICES):
            continue
        name = device.get("id") or device.get("netdev") or kind
        yield ExistingCard(
            name, dict(_card_levels(name, kind, device, backends.get(device.get("netdev", ""), {}), remarks))
        )
    for value in line.all("nic", "net"):
        settings = settings_of(value, "type")
        if settings.get("type") in ("none", "nic"):
            if settings.get("type") == "nic":
                model = settings.get("model", "e1000")
                yield ExistingCard(
                    "-net nic", dict(_card_levels("-net nic", model, settings, {"type": "user"}, remarks))
                )
            continue
        if value in line.all("nic"):
            model = settings.get("model", "e1000")
            yield ExistingCard("-nic", dict(_card_levels("-nic", model, settings, settings, remarks)))


def _card_levels(
    name: str, kind: str, device: Mapping[str, str], backend: Mapping[str, str], remarks: Remarks
) -> Iterator[tuple[str, str]]:
    behind = backend.get("type", "")
    if kind.startswith(("virtio", "virtio-net")):
        has_vhost = backend.get("vhost") in ("on", "true") or backend.get("vhostforce") == "on" or "vhostfd" in backend
        yield "net.path", "user" if behind == "user" else "vhost" if has_vhost or "vhostfds" in backend else "tap"
        if behind in ("vhost-user", "vhost-vdpa", "socket", "stream", "dgram", "passt", "l2tpv3", "af-xdp"):
            remarks.add(f"{name} netdev", behind, "is measured as a tap on a bridge")
    elif kind.startswith("rtl8139"):
        yield "net.path", "rtl8139"
    elif kind.startswith("e1000"):
        yield "net.path", "e1000e"
        if not kind.startswith("e1000e"):
            remarks.add(name, kind, "is measured as e1000e")
    else:
        remarks.add(name, kind, "is measured as virtio on a tap")
        yield "net.path", "tap"
    queues = backend.get("queues") or (str(backend["fds"].count(":") + 1) if "fds" in backend else "1")
    if queues != "1":
        yield "net.queues", queues
    mtu = device.get("host_mtu", "1500")
    if mtu != "1500":
        yield "net.mtu", mtu


def _rest(line: QemuOptions, machine: Mapping[str, str], remarks: Remarks) -> None:
    """Remarks for everything else that may have an effect, and for what nobody knows."""
    kind = machine.get("type", "")
    if "q35" not in kind:
        remarks.add("-machine", kind or "the default", "our guest's machine is q35")
    for key, value in machine.items():
        if key not in MACHINE_KEYS:
            remarks.add(f"-machine {key}", value, "is not translated")
    if any("pflash" in value or "OVMF" in value for _, value in line.options):
        remarks.add("firmware", "UEFI", "our guest boots its kernel without firmware")
    for value in line.all("device"):
        device = _device(value)
        kind = device.get("driver", "")
        if kind.startswith("virtio-balloon"):
            remarks.add("-device virtio-balloon", "", "our guest has no balloon")
        elif kind.startswith(("virtio-scsi", "lsi", "megasas", "mptsas", "pvscsi", "am53c974")):
            if not kind.startswith("virtio-scsi"):
                remarks.add(f"-device {kind}", "", "is measured as virtio-scsi")
            elif device.get("iothread"):
                remarks.add(
                    f"-device {kind} iothread", device["iothread"], "is measured as disk.iothread=on of a virtio disk"
                )
        elif not (
            _bus_of(kind)
            or NEUTRAL_DEVICES.match(kind)
            or kind.startswith((*NETWORK_DEVICES, "vfio-pci", "vhost-user-blk"))
        ):
            remarks.add("-device", value if value[:1] != "{" else kind, "is not translated")
    for value in line.all("object"):
        kind = settings_of(value, "qom-type").get("qom-type", "")
        usual_objects = (
            "secret",
            "iothread",
            "memory-backend-",
            "rng-",
            "tls-",
            "input-",
            "throttle-",
            "can-",
            "qtest",
        )
        if not kind.startswith(usual_objects):
            remarks.add("-object", kind, "is not translated")
    for name, value in line.options:
        if name not in NEUTRAL and (name, value) not in (("overcommit", "mem-lock=off"), ("realtime", "mlock=off")):
            remarks.add(f"-{name}", value, "is not translated")
