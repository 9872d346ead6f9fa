"""Split a command line of QEMU into options and their settings, whatever printed it."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from vmtax.existing.guest import NoGuest, shown

PROGRAM = re.compile(r"(^|/)(qemu-system-(?P<arch>[\w]+)|qemu-kvm|kvm|qemu)$")
NARROWEST, WIDEST = 60, 1000  # columns of a terminal that may have wrapped a command line
SUFFIXES = {"b": 1, "k": 2**10, "m": 2**20, "g": 2**30, "t": 2**40}


@dataclass
class QemuOptions:
    """The options of a command line."""

    arch: str
    options: list[tuple[str, str]] = field(default_factory=list)

    def all(self, *names: str) -> Iterator[str]:
        return (value for name, value in self.options if name in names)

    def last(self, *names: str) -> str | None:
        found = list(self.all(*names))
        return found[-1] if found else None


def options_of(text: str) -> QemuOptions:
    words = _words(text)
    start = next((place for place, word in enumerate(words) if PROGRAM.search(word)), None)
    if start is None:
        raise NoGuest("no command line of QEMU: no word is qemu-system-x86_64, qemu-kvm or kvm")
    match = PROGRAM.search(words[start])
    line = QemuOptions((match["arch"] if match else "") or "")
    place = start + 1
    while place < len(words):
        word = words[place]
        place += 1
        if not word.startswith("-") or word == "-":
            if not word.startswith(("#", ">", "2>", "&", "|", ";")):
                line.options.append(("hda", f"file={word}"))  # as QEMU takes a word without an option
                continue
            break
        value = ""
        if place < len(words) and not (words[place].startswith("-") and len(words[place]) > 1):
            value = words[place]
            place += 1
            if value[:1] in "{[":
                while not _is_whole(value) and place < len(words) and not words[place].startswith("-"):
                    value += words[place]
                    place += 1
        line.options.append((word.lstrip("-"), value))
    if not line.options:
        raise NoGuest("a command line of QEMU without options; is it cut off?")
    return line


def _is_whole(value: str) -> bool:
    return value.count("{") == value.count("}") and value.count("[") == value.count("]")


def _words(text: str) -> list[str]:
    """The words of a command line: quoted for a shell, with NULs between them, or wrapped by a terminal."""
    if "\0" in text:
        return [word for word in text.split("\0") if word]
    text = text.replace("\\\r\n", " ").replace("\\\n", " ").strip()
    lines = text.splitlines()
    widths = {len(line) for line in lines[:-1]}
    if len(lines) > 1 and len(widths) == 1 and NARROWEST <= min(widths) <= WIDEST and len(lines[-1]) <= min(widths):
        text = "".join(lines)
    elif len(lines) > 1:
        text = " ".join(line.strip() for line in lines)
    if (
        re.search(r"""['"]""", text)
        and not re.search(r"""(?<![\s=,:{\[])["'](?=[\w])""", text)
        and _has_shell_quotes(text)
    ):
        try:
            return shlex.split(text)
        except ValueError as error:
            raise NoGuest(f"a command line that cannot be read: {error}".lower()) from error
    return _plain_words(text)


def _has_shell_quotes(text: str) -> bool:
    """Whether quotes are a shell's: `ps` prints JSON without any around it."""
    return re.search(r"""\s'[^']*'(\s|$)""", text) is not None or re.search(r"""\s-\S+\s+\{""", text) is None


def _plain_words(text: str) -> list[str]:
    """Words without a shell's quotes, in which a JSON object is one word."""
    words: list[str] = []
    for word in text.split():
        if words and words[-1][:1] == "{" and not _is_whole(words[-1]):
            words[-1] += " " + word
        else:
            words.append(word)
    return words


def settings_of(value: str, first: str) -> dict[str, str]:
    """The settings of "virtio-blk-pci,drive=d,iothread=i", or of JSON; `first` names the one without a name."""
    if value.lstrip()[:1] == "{":
        return {key: _word(each) for key, each in _flat(_json(value)).items() if each is not None}
    found: dict[str, str] = {}
    for number, part in enumerate(_parts(value)):
        name, is_named, setting = part.partition("=")
        if is_named:
            found[name.strip()] = setting
        elif number == 0:
            found[first] = part
        elif part.strip():
            name = part.strip()
            found[name.removeprefix("no") if name.startswith("no") and len(name) > 4 else name] = (
                "off" if name.startswith("no") and len(name) > 4 else "on"
            )
    return found


def _parts(value: str) -> list[str]:
    """Split at commas; two commas are one in a value."""
    return [part.replace("\0", ",") for part in value.replace(",,", "\0").split(",")]


def _json(value: str) -> dict[str, Any]:
    try:
        found = json.loads(value)
    except (ValueError, RecursionError):
        raise NoGuest(f"JSON that cannot be read: {shown('', value)[:60]}…; is it cut off?") from None
    return found if isinstance(found, dict) else {}


def _flat(value: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    found: dict[str, Any] = {}
    for key, each in value.items():
        found.update(_flat(each, f"{prefix}{key}.") if isinstance(each, dict) else {f"{prefix}{key}": each})
    return found


def _word(value: object) -> str:
    return {True: "on", False: "off"}.get(value, str(value)) if isinstance(value, bool) else str(value)


def size_of(text: str, default: int) -> int | None:
    match = re.fullmatch(r"(\d{1,15})(?:\.\d+)?\s*([bkmgt]?)(i?b)?", text.strip().lower(), re.ASCII)
    return int(match[1]) * (SUFFIXES[match[2]] if match[2] else default) if match else None
