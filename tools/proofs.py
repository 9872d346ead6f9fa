"""Proofs are make targets that take long. Each that passes is recorded; a change to what it covers makes it stale.

    python -m tools.proofs run TARGET COMMAND...    runs the command, and records in tests/proofs.tsv that it passed
    python -m tools.proofs list                     says of each target when it last passed, and what changed since
    python -m tools.proofs holds TARGET             exit code 0 if it passed on what it covers, as that is now

What a target covers stands in the Makefile, in the line `# covers: PATH...` above it. Whether that changed is decided
by the contents of its files, not by commits, which may be rewritten.
"""

from __future__ import annotations

import argparse
import hashlib
import re
import subprocess
import sys
import time
from dataclasses import dataclass, fields
from pathlib import Path

ROOT = Path(__file__).parent.parent
RECORDS = ROOT / "tests/proofs.tsv"
COVERS = re.compile(r"^# covers: (.+)\n([a-z-]+):", re.MULTILINE)
OF_HEAD = ("prove-first-time", "prove-deb")  # these run in a clone
SHOWN = 3  # changed files that are named


@dataclass(frozen=True, slots=True)
class Record:
    """One line of the file: a target that passed."""

    target: str
    commit: str  # HEAD when it passed; with "+" where files were not committed
    date: str  # YYYY-MM-DD
    seconds: str  # how long it took
    digest: str  # of the contents of what it covers
    counts: str  # the last line that the command printed


def covered() -> dict[str, list[str]]:
    """Target -> the paths that it covers, in the order of the Makefile."""
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    return {target: paths.split() for paths, target in COVERS.findall(text)}


def records() -> dict[str, Record]:
    """Target -> its newest record."""
    lines = RECORDS.read_text(encoding="utf-8").splitlines()[1:] if RECORDS.exists() else []
    return {record.target: record for record in (Record(*line.split("\t")) for line in lines)}


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, check=True, capture_output=True, text=True).stdout


def digest(paths: list[str]) -> str:
    """Of the names and contents of all files below these paths that git has or would take, as they are now."""
    total = hashlib.sha256()
    names = git("ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", *paths).split("\0")
    for name in sorted({name for name in names if (ROOT / name).is_file()}):
        total.update(f"{name}\0{hashlib.sha256((ROOT / name).read_bytes()).hexdigest()}\n".encode())
    return total.hexdigest()[:16]


def run(target: str, command: list[str]) -> int:
    """The command's exit code, after it has printed what it prints."""
    paths = covered().get(target)
    if paths is None:
        sys.exit(f"tools.proofs: {target}: the Makefile has no line '# covers: PATH...' above this target")
    if target in OF_HEAD and (changes := git("status", "--porcelain", "--", *paths)):
        sys.exit(f"tools.proofs: {target} proves a clone of HEAD: commit this first:\n{changes.rstrip()}")
    before, begun = digest(paths), time.monotonic()
    last = ""
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        while True:
            try:
                for line in process.stdout:
                    print(line, end="", flush=True)
                    last = line.strip(" =\n") or last
                break
            except KeyboardInterrupt:  # the command gets it too, and says what it still does
                continue
    if process.returncode:
        return process.returncode
    if digest(paths) != before:
        sys.exit(f"tools.proofs: {target} passed, and is not recorded: what it covers changed meanwhile: run it again")
    commit = git("rev-parse", "--short=8", "HEAD").strip() + ("+" if git("status", "--porcelain", "--", *paths) else "")
    seconds = f"{time.monotonic() - begun:.0f}"
    counts = " ".join(last.split())[:120]
    record = Record(target, commit, time.strftime("%Y-%m-%d"), seconds, before, counts)
    names = [field.name for field in fields(Record)]
    if not RECORDS.exists():
        RECORDS.write_text("\t".join(names) + "\n", encoding="utf-8")
    with RECORDS.open("a", encoding="utf-8") as file:
        file.write("\t".join(getattr(record, name) for name in names) + "\n")
    print(f"{target} passed; recorded in {RECORDS.relative_to(ROOT)}: commit that file")
    return 0


def holds(record: Record | None, paths: list[str]) -> bool:
    """Whether it passed on what these paths hold now."""
    return record is not None and digest(paths) == record.digest


def state(target: str, paths: list[str], record: Record | None) -> str:
    """One line about a target."""
    if record is None:
        return f"{target:<17} stale: no pass of it is recorded"
    passed = f"passed {record.date} at {record.commit} in {int(record.seconds) / 60:.0f} min"
    if holds(record, paths):
        return f"{target:<17} {passed}: {record.counts}"
    return f"{target:<17} stale: {passed}; since then changed: {changed(record.commit.rstrip('+'), paths)}"


def changed(commit: str, paths: list[str]) -> str:
    """The files below these paths that differ from that commit, as words."""
    try:
        names = git("diff", "--name-only", commit, "--", *paths).split()
    except subprocess.CalledProcessError:  # the commit was rewritten, or this is a shallow clone
        names = []
    more = f" and {len(names) - SHOWN} more" if len(names) > SHOWN else ""
    return ", ".join(names[:SHOWN]) + more if names else "something below " + " ".join(paths)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    passing = actions.add_parser("run")
    passing.add_argument("target")
    passing.add_argument("command", nargs=argparse.REMAINDER)
    actions.add_parser("list")
    actions.add_parser("holds").add_argument("target", choices=covered())
    asked = parser.parse_args()
    if asked.action == "run":
        sys.exit(run(asked.target, asked.command))
    known = records()
    if asked.action == "holds":
        sys.exit(0 if holds(known.get(asked.target), covered()[asked.target]) else 1)
    for target, paths in covered().items():
        print(state(target, paths, known.get(target)))


if __name__ == "__main__":
    main()
