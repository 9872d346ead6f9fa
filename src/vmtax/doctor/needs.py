"""What measuring requires, one check each, and which layers can therefore be measured. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

from vmtax.core import packages
from vmtax.core.checks import HOST, VM, WORST_FIRST, Check, Status
from vmtax.core.units import format_value
from vmtax.doctor.readings import TOOLS_HERE, HostReadings
from vmtax.image.build import CARRY, ROOM
from vmtax.image.build import TOOLS as BUILD_TOOLS
from vmtax.machine import tools
from vmtax.machine.rights import Rights
from vmtax.meter.text import fields, kibibytes
from vmtax.storage import DISK_DIRECTORY
from vmtax.system.packages import install_here

FIRMWARE = "enable VT-x (Intel) or SVM (AMD) in the firmware setup (BIOS, UEFI)"
BASE = (
    *("system", "CPUs", "bubblewrap", "image", "image cache", "ssh", "ssh-keygen"),
    *(tool.name for tool in tools.of(tools.HOST, tools.COPY)),
)
DISKS = ("disk space",)
# What is measured -> its requirements.
WANTS = {
    HOST: (*BASE, *DISKS),
    VM: (*BASE, *DISKS, "VM RAM", "QEMU", "KVM"),
    "nested VM": (*BASE, *DISKS, "nested RAM", "QEMU", "KVM", "nesting"),
    "bridge network": ("root", "ip", "tun", "namespaces"),
    "cold caches": ("root", "page cache"),
}
GOOD = {
    HOST: "CPU, memory and disk without a VM",
    VM: "CPU, memory, disk, network and boot in a guest",
    "nested VM": "the same in a guest of a guest",
    "bridge network": "a bridge and taps in network namespaces of their own",
    "cold caches": "the page cache is dropped once per boot",
}
LACKING = ("lacking", "not working")  # words for requirements that are missing, and that failed
WITHOUT = {
    "bridge network": "QEMU's user networking instead: slower, and it does not reach a nested VM",
    "cold caches": "the host's caches stay warm",
}


@dataclass(frozen=True, slots=True)
class Wanted:
    """What a plan needs of the host under test."""

    vcpus: int
    vm_bytes: int  # memory, including QEMU's
    nested_bytes: int  # memory of an outer VM, in which a nested VM runs
    disk_bytes: int  # for the disks under test


def needs(readings: HostReadings, wanted: Wanted) -> tuple[Check, ...]:
    """Every requirement, met or not."""
    return (
        _system(readings),
        _cpus(readings, wanted),
        _memory("VM RAM", readings, wanted.vm_bytes, "a VM"),
        _memory("nested RAM", readings, wanted.nested_bytes, "a VM with a nested VM"),
        _root(readings),
        *_tools(readings),
        _qemu(readings),
        _kvm(readings),
        _nesting(readings),
        _granted("bubblewrap", readings.rights, "command", "it enters an image as a run does"),
        _granted("tun", readings.rights, "tun", "a tap was made, in a network namespace of its own"),
        _granted("namespaces", readings.rights, "mount", "a mount was made, in a namespace of its own"),
        _granted("page cache", readings.rights, "caches", "it may be dropped"),
        _image(readings),
        _image_cache(readings),
        _disk(readings, wanted),
    )


def measurable(checks: Iterable[Check]) -> tuple[Check, ...]:
    """One check for each layer, which is as good as the worst of its requirements."""
    by_name = {check.name: check for check in checks}
    return tuple(_layer(name, [by_name[need] for need in wants if need in by_name]) for name, wants in WANTS.items())


def _layer(name: str, wants: list[Check]) -> Check:
    worst = min((need.status for need in wants), key=WORST_FIRST.index)
    bad = [need for need in wants if need.status in ("missing", "failed")]
    if bad:
        lacking = {status: [need.name for need in bad if need.status == status] for status in ("missing", "failed")}
        why = [f"{words}: {', '.join(names)}" for words, names in zip(LACKING, lacking.values(), strict=True) if names]
        text = "; ".join(why) + (f"; {WITHOUT[name]}" if name in WITHOUT else "")
        if "KVM" in (names := {need.name for need in bad}) and names <= {"KVM", "nesting"}:
            text += "; a run would emulate it, which says nothing about cost"
        remedies = dict.fromkeys(line for need in bad for line in need.remedy.splitlines())
        return Check("measurable", name, worst, text, "\n".join(remedies))
    unclear = [need.name for need in wants if need.status == "unknown"]
    text = GOOD[name] + (f"; not known: {', '.join(unclear)}" if unclear else "")
    return Check("measurable", name, worst, text)


def _need(name: str, status: Status, text: str, remedy: str = "") -> Check:
    return Check("need", name, status, text, remedy)


def _system(readings: HostReadings) -> Check:
    if not readings.system:
        return _need("system", "unknown", "uname says nothing")
    if readings.system != "Linux x86_64":
        return _need("system", "missing", f"{readings.system}; vmtax measures Linux on x86-64")
    return _need("system", "ok", readings.system)


def _cpus(readings: HostReadings, wanted: Wanted) -> Check:
    allowed = readings.topology.cpus
    if not allowed:
        return _need("CPUs", "unknown", "which may be used cannot be read")
    text = f"{len(allowed)} may be used, plan quick gives a guest {wanted.vcpus}"
    if len(allowed) < wanted.vcpus:
        return _need("CPUs", "missing", text, "lower guest.vcpus in a plan of your own: vmtax plan show quick")
    return _need("CPUs", "ok", text)


def _memory(name: str, readings: HostReadings, wanted: int, taker: str) -> Check:
    available = kibibytes(fields(readings.files.get("/proc/meminfo", "")).get("MemAvailable"))
    if available is None:
        return _need(name, "unknown", "how much memory is available cannot be read")
    text = f"{gib(available)} available, {taker} takes {gib(wanted)}"
    if available < wanted:
        return _need(name, "missing", text, "end something, or lower guest.memory in a plan of your own")
    return _need(name, "ok", text)


def _root(readings: HostReadings) -> Check:
    if readings.user is None:
        return _need("root", "unknown", "id says nothing")
    if readings.user == 0:
        return _need("root", "ok", "for a bridge and for dropping caches")
    host = readings.host.removeprefix("ssh://").rpartition("@")[2]
    cure = "sudo vmtax run" if readings.is_local else f"vmtax run --host ssh://root@{host}"
    return _need("root", "missing", f"you are user {readings.user}; most remedies need root too", cure)


def _tools(readings: HostReadings) -> Iterable[Check]:
    for tool in tools.of(tools.HOST, tools.COPY, tools.NETWORK):
        have, wrong = readings.tools.get(tool.name), tools.complaint(tool, readings.tools)
        if not wrong:
            yield _need(tool.name, "ok", have.words if have and have.words else "found")
        elif not (tool.use == tools.COPY and readings.placed):
            text = wrong if have else "not found on the host under test"
            yield _need(tool.name, "missing", text, install(readings, tool.name))
    nameless = readings.rights_here.refused("ssh")
    for name in TOOLS_HERE:
        if name in readings.tools_here and nameless:
            yield _need(name, "missing", nameless.why, nameless.remedy)
        elif name in readings.tools_here:
            yield _need(name, "ok", "found")
        else:
            yield _need(name, "missing", "not found where vmtax runs", install_here(name))
    # What few plans take is missing on most hosts; what is there and too old stops them in the middle.
    for tool in tools.of(tools.CARDS, tools.SHARE, tools.DEVICES, tools.BUILD, tools.STORAGE):
        if tool.name in readings.tools and (wrong := tools.complaint(tool, readings.tools)):
            yield _need(f"{tool.name}, for {tool.use}", "missing", wrong, install(readings, tool.name))


def _qemu(readings: HostReadings) -> Check:
    if readings.qemu is not None:
        doubt = f" ({readings.qemu.doubt})" if readings.qemu.doubt else ""
        return _need("QEMU", "ok", readings.qemu.version + doubt)
    text = re.split("; [^;]*, or name another|: name another", readings.qemu_error)[0].removeprefix("host: ")
    return _need("QEMU", "missing", text, install(readings, "qemu-system-x86_64"))


def _kvm(readings: HostReadings) -> Check:
    facts, opens = readings.facts, readings.rights.may("kvm")
    if opens and readings.kvm_failure is None:
        text = "/dev/kvm opens, which proves nothing; --try boots a guest on it"
        return _need("KVM", "unknown", text, "vmtax doctor --try" + readings.option)
    if opens and readings.kvm_failure == "":
        return _need("KVM", "ok", "a guest booted on /dev/kvm since the host's own boot")
    if opens:
        text = f"/dev/kvm opens, but no guest boots on it: {readings.kvm_failure}"
        again = f"vmtax doctor --try{readings.option}   # tries again"
        return _need("KVM", "failed", text, f"{_mend_kvm(readings)}\n{again}")
    refused = readings.rights.refused("kvm")
    if refused and (facts["kvm_device"] or refused.remedy):
        return _need("KVM", "missing", refused.why, refused.remedy)
    if facts["kvm_device"]:
        return _need("KVM", "unknown", "/dev/kvm is there; it could not be tried")
    flag = facts["virtualization_flag"]
    if flag is None:
        known = facts["virtualized"] is not None
        text = "no /dev/kvm, and the CPU shows neither vmx nor svm" if known else "no /dev/kvm"
        return _need("KVM", "missing", text, _mend_kvm(readings) if facts["virtualized"] else FIRMWARE)
    module = {"vmx": "kvm_intel", "svm": "kvm_amd"}[flag]
    return _need("KVM", "missing", "no /dev/kvm, though the CPU can virtualize", f"modprobe {module}")


def _mend_kvm(readings: HostReadings) -> str:
    if readings.facts["virtualized"]:
        return "enable nested virtualization where this VM runs, or use bare metal"
    return "dmesg | grep -i kvm   # says why"


def _nesting(readings: HostReadings) -> Check:
    nested: bool | None = readings.facts["kvm_nested"]
    module = next((name for name in ("kvm_intel", "kvm_amd") if name in readings.facts["kvm_modules"]), None)
    if nested is None or module is None:
        return _need("nesting", "unknown", "neither kvm_intel nor kvm_amd shows whether it nests")
    if nested:
        return _need("nesting", "ok", f"{module} has nested=1")
    cure = f"modprobe -r {module} && modprobe {module} nested=1   # with all VMs off"
    return _need("nesting", "missing", f"{module} is loaded with nested=0", cure)


def _granted(need: str, rights: Rights, name: str, good: str) -> Check:
    """A requirement that was tried."""
    if refused := rights.refused(name):
        return _need(need, "missing", refused.why, refused.remedy)
    return _need(need, "ok", good) if rights.may(name) else _need(need, "unknown", "it could not be tried")


def _image(readings: HostReadings) -> Check:
    """The image is built on the host that runs vmtax and copied to the one under test."""
    image = readings.image
    if image is not None:
        size = format_value(image.bytes, "B")
        there = "" if readings.placed else "; the first run copies it to the host"
        return _need("image", "ok", f"{image.identity}, {size}{there}")
    if readings.user != 0 and readings.is_local:
        return _need("image", "missing", "none yet, and only root can build one", CARRY.replace("; then here: ", "\n"))
    lacking = [tool for tool in BUILD_TOOLS if tool not in readings.tools_here]
    if not lacking:
        return _need("image", "ok", "none yet; the first run builds it from Debian packages: vmtax image build")
    text = f"none yet, and {', '.join(lacking)} to build one cannot be found where vmtax runs"
    return _need("image", "missing", text, install_here(*lacking) + "\nvmtax image import FILE   # or this")


def _image_cache(readings: HostReadings) -> Check:
    if refused := readings.rights.refused("programs"):
        return _need("image cache", "missing", refused.why, refused.remedy)
    needed = 0 if readings.placed else ROOM
    cure = "export XDG_CACHE_HOME=/a/larger/file-system"
    return _space("image cache", readings.cache_free, needed, "its file system", cure)


def _disk(readings: HostReadings, wanted: Wanted) -> Check:
    free, system, device = (readings.disk[key] for key in ("free_bytes", "file_system", "device"))
    where = f"{DISK_DIRECTORY} ({system} on {device})" if system else str(DISK_DIRECTORY)
    cure = f"vmtax run{readings.option} --disk-dir /a/larger/directory"
    if system in ("tmpfs", "ramfs"):
        cure = f"vmtax run{readings.option} --disk-dir /a/directory/on/a/disk"
        return _need("disk space", "missing", f"{where} is memory, not a disk", cure)
    if refused := readings.rights.refused("directory"):
        return _need("disk space", "missing", f"{where}: {refused.why}", f"vmtax run{readings.option} {refused.remedy}")
    return _space("disk space", free, wanted.disk_bytes, where, cure)


def _space(name: str, free: int | None, needed: int, where: str, cure: str) -> Check:
    if free is None:
        return _need(name, "unknown", f"how much is free on {where} cannot be read")
    text = f"{gib(free)} free on {where}" + (f", {gib(needed)} needed" if needed else "")
    return _need(name, "ok", text) if free >= needed else _need(name, "missing", text, cure)


def install(readings: HostReadings, *programs: str) -> str:
    """The command that installs them on the host under test."""
    return packages.install(readings.files.get(packages.RELEASE, ""), *programs)


def gib(size: int) -> str:
    # A number from a damaged file may be too large for a float.
    return f"{min(size, 2**80) / 2**30:.1f} GiB"
