"""Assemble the program that runs in the guest: `python3 -I -S -c SOURCE write|verify ARGS`, as guest.py describes."""

from __future__ import annotations

from importlib import resources

FILES = (
    "records.py",
    "postgresql.py",
    "writers.py",
    "checks.py",
    "stacks.py",
    "guest.py",
)  # in this order
FUTURE = "from __future__ import annotations\n"  # allowed once in a text, and only as the first statement


def guest_source() -> str:
    """The files of the program as one text, without their imports of each other."""
    package = resources.files("vmtax.workload.durability")
    texts = [package.joinpath(name).read_text(encoding="utf-8").partition(FUTURE)[2] for name in FILES]
    return FUTURE + "".join(line for line in "".join(texts).splitlines(True) if not line.startswith("from vmtax."))
