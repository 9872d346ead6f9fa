"""What manuals call unsafe or slow in a guest's settings, each with what to do about it. Nothing is measured here."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Literal

from vmtax.design.hyperv import OFF, level_of, parts_of
from vmtax.existing.guest import ExistingDisk, ExistingGuest, qm_set

Weight = Literal["unsafe", "slow", "space"]


@dataclass(frozen=True, slots=True)
class SettingAdvice:
    """One setting that should be another."""

    weight: Weight
    where: str  # the guest, or the name of its disk or card
    factor: str
    level: str  # that it has
    better: str  # the level that is recommended instead
    why: str  # according to the manuals

    def patch(self, guest: ExistingGuest) -> str:
        """How to change it, for the tool that the guest is configured with; "" if there is no single line for it."""
        return _PATCHES[guest.kind](self, guest)


# Factor -> level -> (weight, what is recommended, why).
_RULES: Mapping[str, Mapping[str, tuple[Weight, str, str]]] = {
    "disk.cache": {
        "unsafe": (
            "unsafe",
            "none",
            "flushes are ignored: a power cut, or a crash of the host, loses data that the guest has flushed",
        ),
        "writethrough": (
            "slow",
            "none",
            "each write waits for the disk; with `none` only those do that the guest flushes, as on a real disk",
        ),
        "directsync": (
            "slow",
            "none",
            "each write waits for the disk; with `none` only those do that the guest flushes, as on a real disk",
        ),
    },
    "disk.bus": {
        "ide": ("slow", "virtio", "an emulated IDE disk has one request at a time"),
        "sata": ("slow", "virtio", "an emulated SATA disk costs an exit of the guest, or more, for each request"),
    },
    "disk.aio": {
        "threads": (
            "slow",
            "native",
            "with a cache of the host's left out (`none`, `directsync`), native AIO needs no threads",
        ),
    },
    "disk.iothread": {
        "off": (
            "slow",
            "on",
            "the disk shares QEMU's main thread with everything else; an iothread of its own serves a busy disk",
        ),
    },
    "disk.discard": {
        "ignore": ("space", "unmap", "what the guest deletes is never given back to the host"),
    },
    "cpu.model": {},
    "net.path": {
        "e1000e": ("slow", "vhost", "an emulated e1000 costs exits of the guest for each packet"),
        "rtl8139": ("slow", "vhost", "an emulated RTL8139 costs exits of the guest for each packet"),
        "tap": ("slow", "vhost", "packets go through QEMU; with vhost the host's kernel carries them"),
        "user": ("slow", "vhost", "QEMU's user networking carries each packet through sockets"),
    },
}
FEW_SOCKETS = 2
# Source: "64 vCPU support" of XenServer 8, which has the limits of each edition.
IDLE_SOCKETS = (
    "its CPUs are {} sockets, and Windows 10 and 11 use one (Home), two (Pro) or four (Enterprise); those of further"
    " sockets stay idle. Windows Server uses all"
)
TIMERS = "stimer"  # the part of Hyper-V's interface that spares Windows emulated timers
_WITH_IOTHREAD = ("virtio", "virtio-scsi")
_DIRECT = ("none", "directsync")


def advice(guest: ExistingGuest) -> tuple[SettingAdvice, ...]:
    """The unsafe settings first, then the slow ones, in the order of the configuration."""
    found = [*_of_guest(guest), *(each for disk in guest.disks if not disk.is_cd for each in _of_disk(disk))]
    for card in guest.cards:
        found += _matching(card.name, card.levels)
    return tuple(sorted(found, key=lambda each: each.weight != "unsafe"))


def _of_guest(guest: ExistingGuest) -> Iterator[SettingAdvice]:
    model = guest.levels.get("cpu.model", "host")
    if model != "host":
        why = "the guest lacks what the model lacks of the host's CPU; worth it only to move to unlike hosts"
        yield SettingAdvice("slow", guest.name, "cpu.model", model, "host", why)
    level = guest.levels.get("cpu.hyperv", OFF)
    parts = parts_of(level)
    if parts and guest.shape.sockets > FEW_SOCKETS:
        why = IDLE_SOCKETS.format(guest.shape.sockets)
        yield SettingAdvice("slow", guest.name, "cpu.topology", "sockets", "cores", why)
    if parts and TIMERS not in parts and guest.kind != "proxmox":  # which chooses by the version of Windows
        yield SettingAdvice(
            "slow",
            guest.name,
            "cpu.hyperv",
            level,
            level_of((*parts, TIMERS)),
            "some versions of Windows then take their timers from HPET or RTC, which costs CPU time, also while idle",
        )


def _of_disk(disk: ExistingDisk) -> Iterator[SettingAdvice]:
    levels = {"disk.iothread": "off", "disk.discard": "ignore", **disk.levels}
    if levels.get("disk.bus") not in _WITH_IOTHREAD:
        del levels["disk.iothread"]
    if levels.get("disk.cache") not in _DIRECT:
        levels.pop("disk.aio", None)
    yield from _matching(disk.name, levels)


def _matching(where: str, levels: Mapping[str, str]) -> Iterator[SettingAdvice]:
    for factor, rules in _RULES.items():
        level = levels.get(factor, "")
        if level in rules:
            weight, better, why = rules[level]
            yield SettingAdvice(weight, where, factor, level, better, why)


# The same change in the words of each tool. Sources: libvirt's formatdomain, qm(1), qemu-system-x86_64(1).

# Factor -> its level in libvirt's words, and the XML around it; {} is the level.
_XML: Mapping[str, tuple[Mapping[str, str], str]] = {
    "disk.cache": ({}, "<driver … cache='{}'/>"),
    "disk.aio": ({}, "<driver … io='{}'/>"),
    "disk.discard": ({}, "<driver … discard='{}'/>"),
    "disk.detect_zeroes": ({}, "<driver … detect_zeroes='{}'/>"),
    "disk.bus": ({"virtio-scsi": "scsi"}, "<target … bus='{}'/>, without its <address>"),
    "disk.queues": ({}, "<driver … queues='{}'/>"),
    "cpu.model": ({}, "<cpu mode='custom'><model>{}</model></cpu>"),
}
# What is written otherwise than its level.
_XML_OF_LEVEL: Mapping[tuple[str, str], str] = {
    ("disk.iothread", "on"): "<iothreads>1</iothreads>, and <driver … iothread='1'/>",
    ("disk.iothread", "off"): "<driver …/> without iothread",
    ("disk.queues", "auto"): "<driver …/> without queues",
    ("cpu.model", "host"): "<cpu mode='host-passthrough'/>",
    ("guest.hpet", "on"): "<timer name='hpet' present='yes'/> in <clock>",
    ("guest.hpet", "off"): "<timer name='hpet' present='no'/> in <clock>",
    ("cpu.topology", "cores"): "<topology sockets='1' cores='…' threads='1'/> in <cpu>",
    ("cpu.topology", "sockets"): "<topology sockets='…' cores='1' threads='1'/> in <cpu>",
    ("cpu.topology", "threads"): "<topology sockets='1' cores='…' threads='2'/> in <cpu>",
    ("memory.backing", "thp"): "no <memoryBacking>",
    ("memory.backing", "memfd"): "<memoryBacking><source type='memfd'/><access mode='shared'/></memoryBacking>",
    ("memory.backing", "2MiB"): "<memoryBacking><hugepages><page size='2' unit='M'/></hugepages></memoryBacking>",
    ("memory.backing", "1GiB"): "<memoryBacking><hugepages><page size='1' unit='G'/></hugepages></memoryBacking>",
    ("memory.merge", "off"): "<memoryBacking><nosharepages/></memoryBacking>",
    ("memory.merge", "on"): "<memoryBacking> without <nosharepages/>",
    ("net.path", "vhost"): "<model type='virtio'/>, on a bridge or network",
}
_OF_DRIVE = {
    ("disk.cache", "none"): "cache=none",
    ("disk.aio", "native"): "aio=native",
    ("disk.iothread", "on"): "iothread=1",
    ("disk.discard", "unmap"): "discard=on",
}
_IN_QEMU = {
    ("disk.cache", "none"): "cache=none in -drive, cache.direct=on in -blockdev",
    ("disk.bus", "virtio"): "-device virtio-blk-pci",
    ("disk.aio", "native"): "aio=native",
    ("disk.iothread", "on"): "-object iothread,id=io1 and iothread=io1 in -device",
    ("disk.discard", "unmap"): "discard=unmap",
    ("cpu.model", "host"): "-cpu host",
    ("net.path", "vhost"): "-device virtio-net-pci, and vhost=on in -netdev tap",
}


def change_of_xml(factor: str, level: str) -> str:
    """What a domain's definition says at this level of a factor; "" if no line of it does."""
    if (text := _XML_OF_LEVEL.get((factor, level))) is not None:
        return text
    if factor == "cpu.hyperv":
        return _hyperv_in_xml(level)
    words, form = _XML.get(factor, ({}, ""))
    return form.format(words.get(level, level))


def _hyperv_in_xml(level: str) -> str:
    clock = ", <timer name='hypervclock' present='yes'/> in <clock>" if "time" in parts_of(level) else ""
    parts = [f"<{name} …/>" for name in parts_of(level) if name not in ("time", "stimer-direct")]
    direct = ", <direct …/> in <stimer>" if "stimer-direct" in parts_of(level) else ""
    hidden = f", <kvm><hidden state='{'off' if level == OFF else 'on'}'/></kvm>"
    return f"{''.join(parts)} in <hyperv>{direct}{clock}{hidden}" if parts else f"no <hyperv>{clock}{hidden}"


def _in_xml(change: SettingAdvice, guest: ExistingGuest) -> str:
    if change.factor == "cpu.hyperv":
        parts = "".join(f"<{name} state='on'/>" for name in ("vpindex", "synic", TIMERS))
        has_clock = "time" in parts_of(change.level)
        clock = "" if has_clock else ", <timer name='hypervclock' present='yes'/> in <clock>"
        return f"virsh edit {guest.name}: {parts} in <hyperv>{clock}"
    text = change_of_xml(change.factor, change.better)
    where = "" if change.where == guest.name else f" of {change.where}"
    return f"virsh edit {guest.name}: {text}{where}" if text else ""


def _in_proxmox(change: SettingAdvice, guest: ExistingGuest) -> str:
    if change.factor == "cpu.model":
        return "qm set VMID --cpu host"
    if change.factor == "cpu.topology":
        return f"qm set VMID --sockets 1 --cores {guest.shape.most}"
    lines = {**{disk.name: disk.line for disk in guest.disks}, **{card.name: card.line for card in guest.cards}}
    line = lines.get(change.where, "")
    setting = _OF_DRIVE.get((change.factor, change.better))
    if setting and line:
        name = setting.partition("=")[0]
        kept = [part for part in line.split(",") if part.partition("=")[0] != name]
        single = " --scsihw virtio-scsi-single" if name == "iothread" and change.where.startswith("scsi") else ""
        command = qm_set(change.where, ",".join([*kept, setting]))
        return command and f"{command}{single}"
    if change.factor == "net.path" and line:
        model, _, rest = line.partition(",")
        return qm_set(change.where, f"virtio{model[len(model.partition('=')[0]) :]}{',' if rest else ''}{rest}")
    return f"detach {change.where}, and attach its volume as scsi or virtio" if change.factor == "disk.bus" else ""


def _in_qemu(change: SettingAdvice, guest: ExistingGuest) -> str:
    if change.factor == "cpu.hyperv":
        return "hv-vpindex,hv-time,hv-synic,hv-stimer in -cpu"
    if change.factor == "cpu.topology":
        return "sockets=1 in -smp, with as many cores"
    return _IN_QEMU.get((change.factor, change.better), "")


_PATCHES = {"libvirt": _in_xml, "proxmox": _in_proxmox, "qemu": _in_qemu}
