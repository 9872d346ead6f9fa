"""Parse numbers and fields of /proc and /sys. Nothing here raises: what is not understood is None."""

from __future__ import annotations

import math

# File name -> text, as one grep printed it.
Files = dict[str, str]

# grep as a reader of many files at once: "name:line" for each line, without errors for missing files. A process costs
# an emulated guest 10 to 20 ms and the way there 50 ms; another file costs almost nothing.
GREP = ("grep", "-r", "-s", "-a", "-H")


def parse_files(text: str) -> Files:
    """GREP's output as file name -> text."""
    lines: dict[str, list[str]] = {}
    for line in text.split("\n"):
        name, colon, rest = line.partition(":")
        if colon and name.startswith("/"):
            lines.setdefault(name, []).append(rest)
    return {name: "\n".join(rest).strip() for name, rest in lines.items()}


def fields(text: str, separator: str = ":") -> dict[str, str]:
    """Lines "name: value" as a mapping; the first of equal names wins."""
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
    """Y, N, 1, 0, true, false in any case."""
    return {"y": True, "1": True, "true": True, "n": False, "0": False, "false": False}.get(str(text).strip().lower())


def chosen(text: str | None) -> str | None:
    """The word in brackets: "always [madvise] never" is "madvise"; a single word is itself."""
    words = (text or "").split()
    marked = [word[1:-1] for word in words if word.startswith("[") and word.endswith("]")]
    return marked[0] if marked else words[0] if len(words) == 1 else None


def named(files: Files, name: str) -> list[str]:
    """The texts of all files with this base name."""
    return [text for path, text in files.items() if path.rpartition("/")[2] == name]


def joined(texts: list[str]) -> str | None:
    """The distinct texts, sorted and joined; None if there are none."""
    return ", ".join(sorted(set(texts))) or None
