"""Limits that somebody set for a guest, of I/O, of packets or of CPU time: the first thing to know if it is slow.

No run measures them: a guest of ours has none, nor has a disk that is plugged in. They are found in what was not
translated.
"""

from __future__ import annotations

import re
import shlex
from dataclasses import dataclass

from vmtax.existing.guest import ExistingGuest, Remark, qm_set

# How a remark is called about a limit; the first group is the device, if it has one.
_OF_LIMITS = (
    re.compile(r"devices/disk\[([^]]+)\]/iotune"),
    re.compile(r"devices/interface\[([^]]+)\]/bandwidth"),
    re.compile(r"cputune/(?:\w+_)?quota()"),
    re.compile(r"blkiotune()"),
    re.compile(r"((?:scsi|virtio|ide|sata)\d+): (?:iops|mbps|bps|throttling-group)\w*"),
    re.compile(r"(net\d+): rate"),
    re.compile(r"cpulimit()"),
    re.compile(r"(.+?) (?:throttling\.|throttle-|bps|iops)\S*"),
)
_OF_IOTUNE = re.compile(r"\b((?:total|read|write)_(?:bytes|iops)_sec(?:_max)?)=[1-9]")
_ELEMENTS = {"quota": "<quota> in <cputune>", "blkiotune": "the limits in <blkiotune>"}  # of the whole guest
_KEY = re.compile(r"^(?:iops|mbps|bps|rate|throttling-group)")  # of a line of Proxmox


@dataclass(frozen=True, slots=True)
class SetLimit:
    """What one device, or the guest, is held to."""

    where: str  # the device, or the guest's name
    text: str  # in the words of the configuration
    change: str  # how to lift it; "" if there is no single line for it


def limits(guest: ExistingGuest) -> tuple[SetLimit, ...]:
    """In the order of the configuration, each device once."""
    found: dict[str, list[Remark]] = {}
    for remark in guest.remarks:
        match = next((match for each in _OF_LIMITS if (match := each.fullmatch(remark.where)) is not None), None)
        if match is not None and not _is_none(remark.text) and not _is_share(remark):
            found.setdefault(match[1], []).append(remark)
    return tuple(
        SetLimit(where or guest.name, _text(said), _change(guest, where, _text(said))) for where, said in found.items()
    )


def _is_none(text: str) -> bool:
    """Whether all of its numbers are those with which a configuration says that there is no limit."""
    numbers = re.findall(r"(?<![\w-])-?\d+\b", text)
    return bool(numbers) and set(numbers) <= {"0", "-1"}


def _is_share(remark: Remark) -> bool:
    """Whether it only says who has how much where several want all, or how a limit would be counted."""
    return remark.where.endswith("iotune") and _OF_IOTUNE.search(remark.text) is None


def _text(said: list[Remark]) -> str:
    return ", ".join(f"{re.split(r'[ /]', each.where)[-1]} {each.text}".strip() for each in said)


def _change(guest: ExistingGuest, where: str, text: str) -> str:
    if guest.kind == "libvirt":
        set_to_none = "".join(f" --{name.replace('_', '-')} 0" for name in _OF_IOTUNE.findall(text) if where)
        if set_to_none and "group_name" not in text:  # which others may share
            command = f"virsh blkdeviotune {shlex.quote(guest.name)} {shlex.quote(where)}{set_to_none}"
            return f"{command} --config --live"  # libvirt says so if it does not run
        of_guest = " and ".join(name for word, name in _ELEMENTS.items() if re.search(rf"{word} ", text))
        element = of_guest if not where else "<iotune>" if _is_disk(guest, where) else "<bandwidth>"
        return f"virsh edit {shlex.quote(guest.name)}: without {element}{f' of {where}' if where else ''}"
    if guest.kind == "proxmox":
        lines = {disk.name: disk.line for disk in guest.disks} | {card.name: card.line for card in guest.cards}
        if not where:
            return "qm set VMID --delete cpulimit"
        kept = [part for part in lines.get(where, "").split(",") if not _KEY.match(part)]
        return qm_set(where, ",".join(kept))
    return f"-drive or -blockdev of {where} without its limit"


def _is_disk(guest: ExistingGuest, where: str) -> bool:
    return any(disk.name == where for disk in guest.disks)
