"""Split a configuration of Proxmox VE into keys and values, whatever printed it: its file, `qm`, `pvesh` or a page."""

from __future__ import annotations

import json
import re
from collections.abc import Callable

from vmtax.existing.guest import NoGuest, shown

LINE = re.compile(r"^\s*([a-z][a-z0-9_.-]*):\s?(.*)$")
ROW = re.compile(r"^\s*[│|]\s*(?!key\s)([a-z][\w-]*)\s*[│|]\s*(.*?)\s*[│|]\s*$")  # of the table that `pvesh get` prints
SECTION = re.compile(r"[A-Za-z][\w:-]*")  # a snapshot, or what is pending; a heading of somebody's has other words
NOTE = re.compile(r"(^|\s+)#\s.*$")  # which Proxmox does not know, but pages have
WITH_HASHES = frozenset(("description", "args", "sshkeys", "tags", "cipassword"))
PROMPT = re.compile(r"\s*\S+@\S+[#$>]|\s*[#$>]\s*$")
NO_GUEST = "is no description of a guest; `qm config VMID` prints one"


def rows(text: str, is_of_guest: Callable[[str], bool]) -> list[tuple[str, str]]:
    """Key and value of each line, of the guest as it is now: sections are its snapshots. The last of a key counts.

    is_of_guest: whether only the configuration of a guest has that key. Raises NoGuest.
    """
    if text.lstrip().startswith("{"):
        return _of_json(text)
    found: list[tuple[str, str]] = []
    for number, row in enumerate(text.splitlines(), start=1):
        line = ROW.sub(r"\1: \2", row)
        if section := re.match(r"\s*\[([^\]]*)\]\s*$", line):
            if found and SECTION.fullmatch(section[1]):
                break
            continue
        if not line.strip() or line.lstrip().startswith(("#", *"┌╞├└│╔")):
            continue
        match = LINE.match(line)
        if match is None:
            if not found or line.strip().strip("`") == "":
                continue  # a prompt, words before it, or marks of a page
            if PROMPT.match(line):
                break
            if not any(is_of_guest(key) for key, _ in found):
                raise NoGuest(NO_GUEST)
            raise NoGuest(f"line {number}: must be `key: value`, not {shown('', line)[:60]!r}")
        key, value = match[1], match[2] if match[1] in WITH_HASHES else NOTE.sub("", match[2])
        found.append((key, value.strip()))
    return found


def _of_json(text: str) -> list[tuple[str, str]]:
    try:
        value = json.loads(text)
    except (ValueError, RecursionError) as error:
        raise NoGuest(f"JSON that cannot be read: {error}") from error
    value = value.get("data", value) if isinstance(value, dict) else value
    if not isinstance(value, dict):
        raise NoGuest("JSON, but no object with a guest's settings")
    return [(str(key), _json_text(setting)) for key, setting in value.items()]


def _json_text(value: object) -> str:
    if isinstance(value, bool):
        return str(int(value))
    return value if isinstance(value, str) else json.dumps(value)
