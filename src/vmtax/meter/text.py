"""Reading numbers and fields out of the text of /proc and /sys. Nothing here raises: what is not understood is None."""

from __future__ import annotations

import math

# File name -> text, as one grep printed them.
Files = dict[str, str]

# grep as a reader of many files at once: "name:line" for each line, silent about files that are missing.
# A process costs an emulated guest 10 to 20 ms and the way there 50 ms; a file costs nearly nothing.
GREP = ("grep", "-r", "-s", "-a", "-H")


def parse_files(text: str) -> Files:
    """What GREP printed -> file name -> text."""
    lines: dict[str, list[str]] = {}
    for line in text.split("\n"):
        name, colon, rest = line.partition(":")
        if colon and name.startswith("/"):
            lines.setdefault(name, []).append(rest)
    return {name: "\n".join(rest).strip() for name, rest in lines.items()}


def fields(text: str, separator: str = ":") -> dict[str, str]:
    """Lines "name: value" -> a mapping; the first of equal names wins."""
    found: dict[str, str] = {}
    for line in text.splitlines():
        name, parted, value = line.partition(separator)
        if parted:
            found.setdefault(name.strip(), value.strip())
    return found


def number(text: object) -> float | None:
    """A finite number, or None."""
    try:
        value = float(str(text))
    except ValueError:
        return None
    return value if math.isfinite(value) else None


def whole(text: object) -> int | None:
    """A whole number, or None."""
    try:
        return int(str(text))
    except ValueError:
        return None


def kibibytes(text: str | None) -> int | None:
    """Bytes of "16307520 kB"."""
    value = whole(text.removesuffix("kB").strip()) if text else None
    return None if value is None else value * 1024


def hertz(kilohertz: str) -> int | None:
    value = whole(kilohertz)
    return None if value is None else value * 1000


def switch(text: object) -> bool | None:
    """Y, N, 1, 0, true, false in all their spellings."""
    return {"y": True, "1": True, "true": True, "n": False, "0": False, "false": False}.get(str(text).strip().lower())


def chosen(text: str | None) -> str | None:
    """The word in brackets: "always [madvise] never" is "madvise"; a single word is itself."""
    words = (text or "").split()
    marked = [word[1:-1] for word in words if word.startswith("[") and word.endswith("]")]
    return marked[0] if marked else words[0] if len(words) == 1 else None


def named(files: Files, name: str) -> list[str]:
    """The texts of all files of this base name."""
    return [text for path, text in files.items() if path.rpartition("/")[2] == name]


def joined(texts: list[str]) -> str | None:
    """The different texts, sorted, as one; None if there are none."""
    return ", ".join(sorted(set(texts))) or None


def cpu_numbers(text: object) -> list[int]:
    """The CPUs that the kernel's list notation names, "0-3,8"; none where it is not understood."""
    numbers: list[int] = []
    for part in str(text or "").split(","):
        first, _, last = part.strip().partition("-")
        if not all(word.isascii() and word.isdigit() and len(word) < 5 for word in (first, last or first)):
            return []
        numbers.extend(range(int(first), int(last or first) + 1))
    return numbers
