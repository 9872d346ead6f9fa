"""Translate a guest's configuration of Proxmox VE: its file, what `qm config` prints, or JSON.

Source of keys and defaults: man 5 qm.conf.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import replace

from vmtax.attach.proxmox.config import DRIVE, boot_order, drive_settings, is_cd
from vmtax.existing import enlightenments
from vmtax.existing.arguments import handed_on
from vmtax.existing.guest import (
    BUSES,
    MOST_VCPUS,
    CpuShape,
    ExistingCard,
    ExistingDisk,
    ExistingGuest,
    HostPlacement,
    NoGuest,
    Remarks,
    cpus_of,
    shown,
    topology_level,
    volume_levels,
    whole_of_text,
    without_secrets,
)
from vmtax.existing.proxmox_rows import NO_GUEST, rows
from vmtax.existing.proxmox_storage import OTHER_DEFAULTS, UNKNOWN, ProxmoxStorage, storage_of

CARD = re.compile(r"net\d+$")
NODE = re.compile(r"numa\d+$")
MOST_MIB = 2**32
# They change nothing that is measured.
NEUTRAL = frozenset(
    (
        *("name", "vmid", "digest", "description", "tags", "boot", "bootdisk", "onboot", "startup", "smbios1"),
        *("vmgenid", "meta", "ostype", "autostart", "protection", "parent", "snaptime", "snapstate", "vmstate"),
        *("runningmachine", "runningcpu", "lock", "vga", "keyboard", "localtime", "startdate", "tablet", "hotplug"),
        *("agent", "searchdomain", "nameserver", "cicustom", "ciuser", "cipassword", "citype", "ciupgrade", "sshkeys"),
        *("rng0", "audio0", "spice_enhancements", "watchdog", "reboot", "hookscript", "efidisk0", "tpmstate0", "acpi"),
        *(
            "freeze",
            "migrate_downtime",
            "migrate_speed",
            "cdrom",
            "storage",
            "template",
            "keephugepages",
            "pool",
            "shares",
        ),
        *("tdf", "ha", "hastate", "status", "node", "uptime", "pid"),
    )
)
NEUTRAL_NUMBERED = re.compile(r"(ipconfig|unused|serial|usb|parallel)\d+$")
TEXTS = ("description", "sshkeys", "cipassword")  # of no effect, and long or secret
OF_ONE = ("name", "smbios1", "vmgenid")  # no two guests have the same
# Words that other files have as well.
COMMON = frozenset(
    (
        "name",
        "description",
        "tags",
        "lock",
        "parent",
        "storage",
        "template",
        "digest",
        "reboot",
        "cdrom",
        "acpi",
        "freeze",
    )
)
TRANSLATED = frozenset(
    ("sockets", "cores", "vcpus", "memory", "cpu", "hugepages", "scsihw", "affinity", "smp", "args", "allow-ksm")
)
CONTAINER = re.compile(r"(lxc\.|rootfs$|mp\d+$|unprivileged$|swap$)")
DEFAULTS = {"numa": "0", "kvm": "1", "cpulimit": "0", "balloon": "0", "bios": "seabios", "acpi": "1"}
# CPU models of Proxmox that are none of QEMU's.
MODELS = {
    **{"x86-64-v2-AES": "x86-64-v2", "max": "host"},
    **{f"Icelake-Client{kind}": f"Icelake-Server{kind}" for kind in ("", "-noTSX")},  # as Proxmox reads them
}
WITHOUT_HPET = (10, 1)  # the machine version from which Linux guests have none
DEFAULT_MODEL = "kvm64"
DRIVE_NEUTRAL = frozenset(
    ("size", "backup", "replicate", "media", "serial", "ssd", "werror", "rerror", "model", "wwn", "vendor", "product")
)


def parse(text: str, storages: Mapping[str, ProxmoxStorage] | None = None) -> ExistingGuest:
    """The guest that the configuration describes. Raises NoGuest.

    storages: those of its host, by name; None where only the configuration is known.
    """
    given = rows(text, _is_of_guest)
    lines = dict(given)
    if not any(map(_is_of_guest, lines)):
        raise NoGuest(NO_GUEST)
    if any(CONTAINER.match(key) for key in lines) and not any(DRIVE.match(key) for key in lines):
        raise NoGuest("the configuration of a container (pct), not of a virtual machine (qm)")
    if lines.get("template", "0") == "1":
        raise NoGuest("a template, which never runs: name a guest that was made of it")
    remarks = Remarks()
    for key, value in given:
        if value == lines[key]:
            continue
        if key in OF_ONE:
            both = f"{shown(key, value)[:60]!r} and {shown(key, lines[key])[:60]!r}"
            raise NoGuest(f"{key} is given twice, {both}: give the configuration of one guest alone")
        if key not in TEXTS:
            remarks.add(key, value, "is given again further down, which counts")
    if lines.get("kvm", "1") == "0":
        remarks.add("kvm", "0", "it is emulated, without KVM; our guest has KVM where the host has it")
    if lines.get("arch", "x86_64") != "x86_64":
        raise NoGuest(f"a guest for {shown('arch', lines['arch'])}; guests for x86_64 can be measured")
    guest = ExistingGuest(
        "proxmox",
        lines.get("name") or lines.get("vmid") or "guest",
        _vcpus(lines, remarks),
        _memory(lines, remarks),
        dict(_guest_levels(lines, remarks)),
        tuple(_disks(lines, storages, remarks)),
        tuple(_cards(lines, remarks)),
        shape=CpuShape(_sockets(lines), _sockets(lines) * _whole(lines, "cores", 1, MOST_VCPUS)),
        placement=_placement(lines),
    )
    _rest(lines, remarks)
    return replace(guest, remarks=remarks.all())


def _is_of_guest(key: str) -> bool:
    """Whether only the configuration of a guest has that key."""
    return (key in NEUTRAL | TRANSLATED | {"machine", "bios"} and key not in COMMON) or bool(
        DRIVE.match(key) or CARD.match(key)
    )


def _whole(lines: Mapping[str, str], key: str, default: int, most: int) -> int:
    text = lines.get(key, str(default)).split(",")[0].rpartition("=")[2]
    number = whole_of_text(text) or 0
    if not 0 < number <= most:
        raise NoGuest(f"{key}: must be a number from 1 to {most}, not {shown(key, text)!r}")
    return number


def _sockets(lines: Mapping[str, str]) -> int:
    return _whole(lines, "sockets" if "sockets" in lines else "smp", 1, 16)  # `smp` is its name of old


def _vcpus(lines: Mapping[str, str], remarks: Remarks) -> int:
    whole = _sockets(lines) * _whole(lines, "cores", 1, MOST_VCPUS)
    if "vcpus" in lines:
        current = _whole(lines, "vcpus", whole, whole)
        if current < whole:
            remarks.add("vcpus", f"{current} of {whole}", "our guest has as many, and none can be added")
        return current
    return whole


def _placement(lines: Mapping[str, str]) -> HostPlacement:
    """The CPUs of its affinity. It has NUMA nodes with `numa` alone: as many as are described, or as sockets."""
    nodes = [line for key, line in lines.items() if NODE.match(key)]
    has_nodes = lines.get("numa", "0") == "1"
    is_spread = has_nodes and ((len(nodes) or _sockets(lines)) > 1 or any("hostnodes=" in line for line in nodes))
    return HostPlacement(cpus_of([lines["affinity"]] if lines.get("affinity") else []), is_spread=is_spread)


def _memory(lines: Mapping[str, str], remarks: Remarks) -> int:
    size = _whole(lines, "memory", 512, MOST_MIB)
    least = lines.get("balloon", "0")
    if least not in ("0", str(size)):  # without, the balloon stays empty
        remarks.add("balloon", least, f"our guest keeps all of its {size} MiB")
    return size * 2**20


def _guest_levels(lines: Mapping[str, str], remarks: Remarks) -> Iterator[tuple[str, str]]:
    settings = drive_settings(lines.get("cpu", DEFAULT_MODEL), "cputype")
    model = settings.pop("cputype", DEFAULT_MODEL)
    if model.startswith("custom-"):
        remarks.add("cpu", model, "is defined in /etc/pve/virtual-guest/cpu-models.conf: measured as `host`")
        model = "host"
    if model == "x86-64-v2-AES":
        remarks.add("cpu", model, "is measured as x86-64-v2, without AES")
    yield "cpu.model", MODELS.get(model, model)
    hyperv = enlightenments.of_windows(lines.get("ostype", ""), lines.get("bios", ""))
    if lines.get("ostype") in enlightenments.WINDOWS or _is_linux_without_hpet(lines):
        yield "guest.hpet", "off"
    flags = [flag.strip() for flag in settings.pop("flags", "").split(";") if flag.strip()]
    hyperv |= enlightenments.of_cpu({flag: "on" for flag in flags if flag.startswith("+")})
    level = enlightenments.level(hyperv, "cpu", remarks, hides_kvm=settings.pop("hidden", "0") == "1")
    if level is not None:
        yield "cpu.hyperv", level
    settings.pop("hv-vendor-id", None)
    others = ";".join(flag for flag in flags if not enlightenments.of_cpu({flag: "on"}))
    for key, value in {**({"flags": others} if others else {}), **settings}.items():
        remarks.add(f"cpu: {key}", value, "is not translated")
    if lines.get("args"):
        before = {} if level is None else {"cpu.hyperv": level}
        yield from handed_on(lines["args"], "args", remarks, before).items()
    if lines.get("allow-ksm") == "0":
        yield "memory.merge", "off"
    level = topology_level(_sockets(lines), _whole(lines, "cores", 1, MOST_VCPUS), 1)
    if level is None:
        text = f"{_sockets(lines)} sockets with {lines.get('cores', '1')} cores"
        remarks.add("sockets, cores", text, "is measured as one socket with cores")
    else:
        yield "cpu.topology", level
    pages = lines.get("hugepages")
    if pages in ("2", "1024", "any"):
        yield "memory.backing", "1GiB" if pages == "1024" else "2MiB"
    if "affinity" in lines:
        remarks.add("affinity", lines["affinity"], "vmtax chooses the CPUs; cpu.pinning pins them one to one")


def _is_linux_without_hpet(lines: Mapping[str, str]) -> bool:
    """A machine without a version has that of the host's QEMU, which is at least the one that created the guest."""
    version = re.search(r"-(\d{1,4})\.(\d{1,4})", lines.get("machine", "")) or re.search(
        r"creation-qemu=(\d{1,4})\.(\d{1,4})", lines.get("meta", "")
    )
    return lines.get("ostype") == "l26" and version is not None and (int(version[1]), int(version[2])) >= WITHOUT_HPET


def _disks(
    lines: Mapping[str, str], storages: Mapping[str, ProxmoxStorage] | None, remarks: Remarks
) -> Iterator[ExistingDisk]:
    controller = lines.get("scsihw", "lsi")
    order = [name for name in boot_order(lines) if DRIVE.match(name) and not is_cd(lines.get(name, ""))]
    for name, line in lines.items():
        if not DRIVE.match(name):
            continue
        settings = drive_settings(line, "file")
        volume = settings.pop("file", settings.pop("volume", ""))
        medium = is_cd(line)
        levels = {} if medium else dict(_disk_levels(name, volume, settings, controller, storages, remarks))
        yield ExistingDisk(name, levels, volume, without_secrets("", line), medium, name in order[:1])


def _disk_levels(
    name: str,
    volume: str,
    settings: dict[str, str],
    controller: str,
    storages: Mapping[str, ProxmoxStorage] | None,
    remarks: Remarks,
) -> Iterator[tuple[str, str]]:
    storage, why = storage_of(volume, storages)
    if why:
        remarks.add(f"{name}: volume", volume, why)
    ending = "" if volume.startswith("/") else volume.rpartition(".")[2]  # which counts on a storage only
    form = settings.pop("format", "") or {"qcow2": "qcow2", "vmdk": "vmdk"}.get(ending, "raw")
    if volume.startswith("/dev/"):
        yield from volume_levels(volume).items()
    elif storage.volume:
        yield from {"disk.volume": storage.volume, "disk.filesystem": "none"}.items()
    if form not in ("raw", "qcow2"):
        remarks.add(f"{name}: format", form, "is measured as raw")
    elif form == "qcow2" or not (storage.volume or volume.startswith("/dev/")):
        yield "disk.format", form
    for key, others in OTHER_DEFAULTS.items() if storage.kind == UNKNOWN else ():
        if key not in settings:
            remarks.add(f"{name}: {key}", "not set", f"is measured as most storages have it, other than {others}")
    bus = (DRIVE.match(name) or [""])[1]
    if bus == "scsi" and not controller.startswith("virtio-scsi"):
        remarks.add("scsihw", controller, "is measured as virtio-scsi")
    bus = "virtio-scsi" if bus == "scsi" else bus
    assert bus in BUSES
    yield "disk.bus", bus
    cache = settings.pop("cache", "") or storage.cache()
    yield "disk.cache", cache
    yield "disk.aio", settings.pop("aio", "") or storage.aio(cache)
    if settings.pop("iothread", "0") == "1":
        if bus == "virtio" or controller == "virtio-scsi-single":
            yield "disk.iothread", "on"
        else:
            remarks.add(f"{name}: iothread", "1", "has no effect without virtio or scsihw virtio-scsi-single")
    discard = settings.pop("discard", "ignore")
    if discard == "on":
        yield "disk.discard", "unmap"
    if settings.pop("detect_zeroes", "1") == "1":
        yield "disk.detect_zeroes", "unmap" if discard == "on" else "on"
    if "queues" in settings:
        yield "disk.queues", settings.pop("queues")
    for key, value in settings.items():
        if key not in DRIVE_NEUTRAL:
            remarks.add(f"{name}: {key}", value, "is not translated")


def _cards(lines: Mapping[str, str], remarks: Remarks) -> Iterator[ExistingCard]:
    for name, line in lines.items():
        if not CARD.match(name):
            continue
        settings = drive_settings(line, "legacy")
        legacy = settings.pop("legacy", "")
        models = (
            "virtio",
            "e1000",
            "e1000e",
            "rtl8139",
            "vmxnet3",
            "ne2k_pci",
            "pcnet",
            "i82551",
            "i82557b",
            "i82559er",
        )
        given = next(
            (key for key in settings if key in models or key.startswith("e1000")), settings.get("model", legacy)
        )
        settings.pop(given, None)
        settings.pop("model", None)
        levels = dict(_card_levels(name, given, settings, remarks))
        yield ExistingCard(name, levels, without_secrets("", line))


def _card_levels(name: str, model: str, settings: dict[str, str], remarks: Remarks) -> Iterator[tuple[str, str]]:
    if model == "virtio":
        yield "net.path", "vhost" if "bridge" in settings else "user"  # Proxmox always takes vhost-net with a bridge
    elif model == "rtl8139":
        yield "net.path", "rtl8139"
    elif model.startswith("e1000"):
        yield "net.path", "e1000e"
        if model != "e1000e":
            remarks.add(f"{name}: model", model, "is measured as e1000e")
    else:
        remarks.add(f"{name}: model", model, "is measured as virtio with vhost")
        yield "net.path", "vhost"
    if "queues" in settings:
        yield "net.queues", settings.pop("queues")
    mtu = settings.pop("mtu", "")
    if mtu and mtu != "1":  # 1: that of the bridge
        yield "net.mtu", mtu
    if settings.pop("firewall", "0") == "1":
        remarks.add(f"{name}: firewall", "1", "is not translated: one more bridge, and its rules, for each packet")
    for key, value in settings.items():
        if key not in ("bridge", "macaddr", "link_down", "tag", "trunks"):
            remarks.add(f"{name}: {key}", value, "is not translated")


def _rest(lines: Mapping[str, str], remarks: Remarks) -> None:
    for key, value in lines.items():
        if key in TRANSLATED or key in NEUTRAL or NEUTRAL_NUMBERED.match(key) or DRIVE.match(key) or CARD.match(key):
            continue
        if value == DEFAULTS.get(key):
            continue
        if key == "machine":
            settings = drive_settings(value, "type")
            kind = settings.pop("type", "")
            if "q35" not in kind:
                remarks.add(key, kind or "i440fx, the default", "our guest's machine is q35")
            for name, setting in settings.items():
                remarks.add(f"machine: {name}", setting, "is not translated")
        elif key == "bios":
            remarks.add(key, value, "our guest boots its kernel without firmware")
        elif key not in ("balloon", "kvm", "arch"):
            remarks.add(key, value, "is not translated")
    if "machine" not in lines:
        remarks.add("machine", "i440fx, the default", "our guest's machine is q35")
    disks = [name for name, line in lines.items() if DRIVE.match(name) and not is_cd(line)]
    if len(disks) > 1:
        remarks.add(", ".join(disks), f"{len(disks)} disks", "one is measured: --disk NAME chooses it")
