"""Translate a command line of QEMU, as `ps`, /proc/PID/cmdline, a log of libvirt or a bug report shows it.

Source of options: qemu-system-x86_64(1), of QEMU 11.0.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from vmtax.existing.arguments import cpu_levels
from vmtax.existing.guest import ExistingCard, ExistingGuest, HostPlacement, NoGuest, Remarks, shown
from vmtax.existing.qemu_cpus import CPU_DEVICE, cpus_of_line
from vmtax.existing.qemu_disks import bus_of, device_of, disks, list_unknown
from vmtax.existing.qemu_words import LEFT_OUT, QemuOptions, options_of, settings_of, size_of

# They change nothing that is measured, or have their counterpart in our guest. No values of these are printed.
NEUTRAL = frozenset(
    (
        LEFT_OUT,
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
            "balloon",
            "redir",
            "watchdog",
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
            "dtb",
        ),
    )
)
MEMORY_KEYS = frozenset(
    (
        *(
            "qom-type",
            "id",
            "size",
            "mem-path",
            "hugetlb",
            "hugetlbsize",
            "share",
            "prealloc",
            "prealloc-threads",
            "dump",
        ),
        *("reserve", "x-use-canonical-path-for-ramblock-id", "align"),
    )
)
# Of network cards and what is behind them; names of addresses and wiring.
CARD_KEYS = frozenset(
    (
        *(
            "driver",
            "id",
            "netdev",
            "mac",
            "bus",
            "addr",
            "bootindex",
            "romfile",
            "rombar",
            "host_mtu",
            "mq",
            "vectors",
        ),
        *("multifunction", "model", "macaddr", "type", "name", "acpi-index", "disable-modern", "disable-legacy"),
    )
)
NETDEV_KEYS = frozenset(
    (
        *("type", "id", "fd", "fds", "vhost", "vhostfd", "vhostfds", "vhostforce", "ifname", "script", "downscript"),
        *("queues", "br", "helper", "hostfwd", "guestfwd", "net", "host", "dhcpstart", "dns", "dnssearch", "restrict"),
        *("hostname", "tftp", "bootfile", "smb", "smbserver", "domainname", "ipv4", "ipv6", "chardev", "model"),
        *(
            "macaddr",
            "mac",
            "name",
            "vlan",
            "addr.type",
            "addr.path",
            "server",
            "path",
            "vhostdev",
            "listen",
            "connect",
        ),
        *("mcast", "udp", "localaddr", "sndbuf-none", "netdev", "tftp-server-name"),
    )
)
CONTROLLER_KEYS = frozenset(("driver", "id", "bus", "addr", "iothread", "multifunction", "romfile", "disable-modern"))
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
    r"|virtio-mouse|virtio-tablet|virtio-input|vmgenid|vmcoreinfo|ccid|ide-cd|scsi-cd|floppy|ahci|ide-drive-none|pci-ohci|x3130|xio3130)"
)
ELSEWHERE = "-readconfig {}: the guest's settings stand in that file, as of instances of LXD and Incus; it is not read"
NETWORK_DEVICES = ("virtio-net", "e1000", "rtl8139", "vmxnet3", "ne2k", "pcnet", "i82", "tulip", "igb", "usb-net")


def parse(text: str) -> ExistingGuest:
    """The guest that this command line starts. Raises NoGuest."""
    line = options_of(text)
    if line.arch not in ("", "x86_64", "i386"):
        raise NoGuest(f"a guest for {line.arch}; guests for x86_64 can be measured")
    if line.last("m") is None and (file := line.last("readconfig")) is not None:
        raise NoGuest(ELSEWHERE.format(shown("", file)))
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
    vcpus, shape, topology = cpus_of_line(line, merged.get("type", ""), remarks)
    kinds = [settings_of(value, "kind").values() for value in line.all("numa")]
    guest = ExistingGuest(
        "qemu",
        settings_of(line.last("name") or "", "guest").get("guest") or "guest",
        vcpus,
        memory,
        {**topology, **dict(_guest_levels(line, merged, remarks))},
        tuple(disks(line, remarks)),
        tuple(_cards(line, remarks)),
        shape=shape,
        placement=HostPlacement(None, is_spread=sum("node" in each for each in kinds) > 1),
    )
    _rest(line, merged, remarks)
    names = [disk.name for disk in guest.disks if not disk.is_cd]
    if len(names) > 1:
        remarks.add(", ".join(names), f"{len(names)} disks", "one is measured: --disk NAME chooses it")
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
    modules = [device_of(value) for value in line.all("device")]
    plugged = [backends.get(each.get("memdev", ""), {}) for each in modules if each.get("driver") == "pc-dimm"]
    return size + sum(size_of(each.get("size", ""), 1) or 0 for each in plugged)


def _guest_levels(line: QemuOptions, machine: Mapping[str, str], remarks: Remarks) -> Iterator[tuple[str, str]]:
    yield from cpu_levels(_cpu(line, remarks), "-cpu", remarks).items()
    backends = [settings_of(value, "qom-type") for value in line.all("object")]
    memory = [each for each in backends if each.get("qom-type", "").startswith("memory-backend-")]
    path = line.last("mem-path") or next((each["mem-path"] for each in memory if "mem-path" in each), "")
    kinds = {each["qom-type"] for each in memory}
    for each in memory:
        list_unknown(f"-object {each['qom-type']}", each, MEMORY_KEYS, remarks)
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


def _cpu(line: QemuOptions, remarks: Remarks) -> str:
    """The last -cpu with a model, as QEMU takes it; the others are listed."""
    values = list(line.all("cpu"))
    models = [value for value in values if settings_of(value, "model").get("model")]
    own = models[-1] if models else "qemu64"
    for value in values:
        if value != own:
            remarks.add("-cpu", value, f"is given as well: {own.partition(',')[0]} is measured")
    return own


def _cards(line: QemuOptions, remarks: Remarks) -> Iterator[ExistingCard]:
    backends = {
        settings.get("id", ""): settings for value in line.all("netdev") for settings in [settings_of(value, "type")]
    }
    count = 0
    for value in line.all("device"):
        device = device_of(value)
        kind = device.get("driver", "")
        if kind.startswith("vfio-pci"):
            why = "is measured as a virtual function, if it is a network card"
            remarks.add("-device vfio-pci", device.get("host", ""), why)
        elif kind.startswith(NETWORK_DEVICES):
            name = device.get("id") or device.get("netdev") or kind
            behind = backends.get(device.get("netdev", ""), {})
            yield ExistingCard(name, dict(_card_levels(name, kind, device, behind, remarks)))
            count += 1
    # The older way: -net nic and its other side are a hub; -nic is both in one.
    hub = [settings_of(value, "type") for value in line.all("net")]
    behind = next((each for each in hub if each.get("type") not in ("nic", "none")), {"type": "user"})
    nics = [settings_of(value, "type") for value in line.all("nic")]
    for name, settings, other in (
        *(("-net nic", each, behind) for each in hub if each.get("type") == "nic"),
        *(("-nic", each, each) for each in nics if each.get("type") != "none"),
    ):
        model = settings.get("model", "e1000")
        yield ExistingCard(name, dict(_card_levels(name, model, settings, other, remarks)))
        count += 1
    if not (count or hub or nics or backends or line.last("nodefaults") is not None):
        remarks.add("-nic", "is missing", "QEMU's default card, an e1000, is not measured")


def _card_levels(
    name: str, kind: str, device: Mapping[str, str], backend: Mapping[str, str], remarks: Remarks
) -> Iterator[tuple[str, str]]:
    behind = backend.get("type", "")
    if kind.startswith(("virtio", "virtio-net")):
        has_vhost = backend.get("vhost") in ("on", "true") or backend.get("vhostforce") == "on" or "vhostfd" in backend
        has_vhost = has_vhost or "vhostfds" in backend or behind.startswith("vhost-")
        path = "user" if behind == "user" else "vhost" if has_vhost else "tap"
        yield "net.path", path
        if behind in ("vhost-user", "vhost-vdpa", "socket", "stream", "dgram", "passt", "l2tpv3", "af-xdp"):
            remarks.add(f"{name} netdev", behind, f"is measured as {path} on a bridge")
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
    list_unknown(f"{name} netdev", backend, NETDEV_KEYS | CARD_KEYS, remarks)
    if device is not backend:
        list_unknown(name, device, CARD_KEYS, remarks)


def _in_words(settings: Mapping[str, str]) -> str:
    """A device or an object, its kind first."""
    kind, *others = settings.items()
    return ",".join([kind[1], *(f"{key}={value}" for key, value in others)])


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
        device = device_of(value)
        kind = device.get("driver", "")
        if kind.startswith("virtio-balloon"):
            # An idle balloon changes nothing.
            list_unknown("-device virtio-balloon", device, CARD_KEYS, remarks)
        elif kind.startswith(("virtio-scsi", "lsi", "megasas", "mptsas", "pvscsi", "am53c974")):
            if not kind.startswith("virtio-scsi"):
                remarks.add(f"-device {kind}", "", "is measured as virtio-scsi")
            list_unknown(f"-device {kind}", device, CONTROLLER_KEYS, remarks)
        elif not (
            bus_of(kind)
            or NEUTRAL_DEVICES.match(kind)
            or CPU_DEVICE.match(kind)
            or kind.startswith((*NETWORK_DEVICES, "vfio-pci", "vhost-user-blk"))
        ):
            remarks.add("-device", _in_words(device), "is not translated")
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
            remarks.add("-object", _in_words(settings_of(value, "qom-type")), "is not translated")
    for word in dict.fromkeys(line.all(LEFT_OUT)):
        remarks.add("options", word, "whoever wrote this left something out, which is not measured")
    for name, value in line.options:
        if name not in NEUTRAL and (name, value) not in (
            ("overcommit", "mem-lock=off"),
            ("realtime", "mlock=off"),
        ):
            remarks.add(f"-{name}", value, "is not translated")
