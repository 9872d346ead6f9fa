"""What the documentation states about times, sizes and messages is what the program has.

A quantity in a page must be in STATED: with the program's own value, or with None where it describes an example,
somebody else's finding, or a figure that was measured once and is a reason for a decision.
"""

from __future__ import annotations

import ast
import math
import re
import tomllib
from functools import cache
from pathlib import Path
from statistics import fmean

import numpy as np
import pytest

from vmtax.analysis.analysis import Analysis
from vmtax.attach.clone import boot, guests
from vmtax.claims import schema as claims
from vmtax.cli import fleet_task
from vmtax.cli.lab_options import NEW
from vmtax.core.stopwatch import SUSPENDED_SECONDS, UPTIME_STEP
from vmtax.core.units import time_ratio
from vmtax.experiment import archive
from vmtax.hypervisor import console
from vmtax.hypervisor.qemu.detect import MINIMUM
from vmtax.image import build as build_image
from vmtax.lab.spec import Size
from vmtax.machine import guard, pipes, ssh
from vmtax.machine.windows import task
from vmtax.meter.moment import SET_SECONDS
from vmtax.plan import yaml
from vmtax.plan.estimate import demonstration
from vmtax.plan.schema import load
from vmtax.report import figures
from vmtax.stats import DecisionRule, minimum_rounds
from vmtax.storage import empty, full, power_cut, undo
from vmtax.store import Store
from vmtax.testbed.session import power
from vmtax.testbed.subjects import provisioned
from vmtax.workload import build, site
from vmtax.workload.fio import PATTERNS

ROOT = Path(__file__).parents[2]
CODE = re.compile(r"^( *)(```+)(.*)\n((?:.*\n)*?) *\2 *$|`[^`\n]+`", re.MULTILINE)
NUMBERS = {
    "a": 1,
    "an": 1,
    "half a": 0.5,
    "half an": 0.5,
    "one": 1,
    "two": 2,
    "three": 3,
    "four": 4,
    "five": 5,
    "six": 6,
}
NUMBERS |= {"seven": 7, "eight": 8, "nine": 9, "ten": 10, "twelve": 12, "fifteen": 15, "twenty": 20}
VAGUE = ("few", "a few", "some", "a tenth of a", "a sixth of a", "a quarter of an")
UNITS = {"s": 1, "second": 1, "minute": 60, "hour": 3600, "day": 86400, "lines": 1}
UNITS |= {"KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "kB": 1e3, "MB": 1e6, "GB": 1e9, "MB/s": 1e6}
QUANTITY = re.compile(
    rf"(?<![\w./-])(\d[\d,.]*|{'|'.join(sorted((*NUMBERS, *VAGUE), key=len, reverse=True))})[ -]"
    rf"({'|'.join(sorted(UNITS, key=len, reverse=True))})s?\b",
    re.IGNORECASE,
)


def published(claim: str, row: str) -> float:
    """The figure of an article's first table."""
    return claims.load(claim).tables[0].rows[row].figure.value


SILENCE = 10.0 * 3  # seconds, of ssh_options.LOGIN
# page -> quantity -> value in bytes or seconds
STATED: dict[str, dict[str, float | None]] = {
    "README.md": {"2 GiB": build_image.ROOM},
    "CONTRIBUTING.md": {"400 lines": None},
    "Makefile": {"150 MB": None},  # measured once
    "docs/development/emulation.md": dict.fromkeys(("20 minutes", "seven minutes")),  # tried by hand
    "docs/development/fleet.md": {
        # Measured by tools/prove_fleet_load.py, or reckoned from that
        **dict.fromkeys(("0.5 MB", "0.5 s", "0.8 MB", "1.4 s", "1.7 MB", "3.6 GB", "3.8 s", "5.2 s", "45 MB")),
        **dict.fromkeys(("0.03 s", "0.2 s", "6.2 s", "59 s", "82 s")),
        "a minute": None,
        **dict.fromkeys(("170 GB", "2 GB", "34 GB", "6 MB/s", "8 MB", "eight hours", "12 kB")),
        "ten seconds": fleet_task.LOOK_SECONDS,
    },
    "docs/development/ledger.md": {"one second": None},
    "docs/development/questions-from-threads.md": dict.fromkeys(("2 MiB", "1 GiB")),  # asked
    "docs/how-to/check-a-published-figure.md": {
        "362 s": published("build-2020", "bare metal"),
        "436 s": published("build-2020", "2 MiB pages, no mitigations"),
        "4 KiB": None,  # a level
    },
    "docs/how-to/choose-where-disks-are.md": {
        "4 GiB": empty.WHOLE_BYTES,
        "64 MiB": empty.ENDS_BYTES,
        "1 MiB": empty.MIB,
        "15 seconds": undo.ZERO_SECONDS,
    },
    "docs/how-to/measure-a-remote-host.md": {"40 seconds": ssh.GUARD_SILENCE, "half a minute": SILENCE},
    "docs/how-to/sure-figures.md": {"a day": None},
    "docs/how-to/what-cpu-work-costs.md": {
        **dict.fromkeys(("4 KiB", "1 GiB")),  # sizes of pages; and memory of a kernel build
        **dict.fromkeys(("0.6 GiB", "4.5 GiB", "28 GiB")),  # see test_memory_of_a_kernel_build
    },
    "docs/how-to/what-survives-a-power-cut.md": {"15 minutes": power.BACK_WITHIN},
    "docs/how-to/which-plan-answers-my-question.md": dict.fromkeys(("2 MiB", "1 GiB")),  # sizes of pages
    "docs/how-to/windows.md": {
        **{"72 hours": task.DEADLINE_HOURS * 3600, "15 minutes": boot.WINDOWS_BOOT_SECONDS},
        "5 minutes": guests.QUIET_SECONDS,
    },
    "docs/how-to/your-own-program.md": {"a minute": None},  # timed
    "docs/development/decisions.md": {
        **dict.fromkeys(("60 lines", "10 s", "1.8 GB", "a tenth of a second", "a sixth of a second", "0.4 s")),
        **dict.fromkeys(("7 s", "230 lines", "fifteen lines", "170 MB", "70 MB", "2 MB", "30 MB", "4 KiB", "1 GiB")),
        "200 kB": figures.base.MOST_CHARACTERS,
        "30 s": SILENCE,
        "40 s": ssh.GUARD_SILENCE,
        "0.2 s": None,
        "0.01 s": UPTIME_STEP,
    },
    "docs/development/method.md": {
        **dict.fromkeys(("an hour", "104 s")),
        "2.5 s": provisioned.EMULATED_KVM_LEAD_SECONDS,
        "0.1 s": SUSPENDED_SECONDS,
        "0.02 s": SET_SECONDS,
    },
    "docs/development/power-cuts.md": {
        "4 KiB": power_cut.BLOCK,
        "a minute": power.GONE_SECONDS,
        "15 minutes": power.BACK_WITHIN,
        "5 s": None,  # zfs_txg_timeout of ZFS
    },
    "docs/development/security.md": {
        "64 MiB": full.FILE_SYSTEM_BYTES,
        "15 seconds": undo.ZERO_SECONDS,
        "64 KiB": pipes.BANNER_BYTES,
        "128 MiB": archive.LARGEST_BYTES,
        "4 MiB": archive.LARGEST_LINE,
        "a tenth of a second": None,
        "two minutes": guard.RECOVERY_SECONDS,
        "a day": float(site.TIMED[-1]),
        "4 GiB": empty.WHOLE_BYTES,
    },
}
PAGES = [
    *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "Makefile")),
    *(page for page in sorted((ROOT / "docs").rglob("*.md")) if page.parent.name != "reference"),
]


def quantities(text: str) -> set[str]:
    """As they are written; "a second host" is no time."""
    plain = " ".join(CODE.sub("`", text).split())
    return {match[0] for match in QUANTITY.finditer(plain) if not re.match("a second", match[0], re.IGNORECASE)}


def value(quantity: str) -> float:
    """In bytes or seconds."""
    match = QUANTITY.fullmatch(quantity)
    assert match
    number = NUMBERS.get(match[1].lower())
    return (float(match[1].replace(",", "")) if number is None else number) * UNITS[match[2]]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_every_time_and_size_is_the_programs(page: Path) -> None:
    stated = STATED.get(str(page.relative_to(ROOT)), {})
    assert quantities(page.read_text()) == set(stated), "state in STATED where it comes from, or leave it out"
    for quantity, known in stated.items():
        assert known is None or value(quantity) == known, quantity


def test_quantities_are_seen() -> None:
    text = "In ten minutes, `5 s` or\n20 GiB:\n```\n7 s\n```\na few seconds; a second host, half an hour"
    assert quantities(text) == {"ten minutes", "20 GiB", "a few seconds", "half an hour"}
    assert [value(one) for one in ("ten minutes", "1,000 s", "half an hour")] == [600, 1000, 1800]


def test_memory_of_a_kernel_build() -> None:
    page = (ROOT / "docs/how-to/what-cpu-work-costs.md").read_text()
    rows = re.findall(r"^\| `(\w+)` \| .* \| ([\d.]+) GiB \|$", page, re.MULTILINE)
    assert {target for target, _ in rows} == {*build.TMPFS}
    for target, stated in rows:
        needed, _ = build.Build(build.BuildParameters(target=target)).memory_bytes(2)
        assert 0.9 * float(stated) <= needed / 2**30 <= float(stated), target


def test_combinations_of_the_plan_storage() -> None:
    factors = load("storage").factors
    combinations = len(factors["disk.format"]) * len(factors["disk.cache"])
    words = f"{combinations} combinations of format and mode on {len(factors['disk.filesystem'])} file systems"
    assert words in (ROOT / "docs/how-to/choose-a-disk.md").read_text()


def test_the_help_of_lab_start_has_the_sizes_of_a_new_lab() -> None:
    size = Size()
    sizes = {"memory": size.memory_bytes, "spare size": size.spare_bytes}
    counts = {"vcpus": size.vcpus, "spares": size.spares}
    assert {name: f"{count / 2**30:g}GiB" for name, count in sizes.items()} | {
        name: str(count) for name, count in counts.items()
    } == NEW


def test_limits_in_words() -> None:
    security = " ".join((ROOT / "docs/development/security.md").read_text().split())
    assert f"{yaml.MOST_BYTES // 1024} KiB at most; values ({yaml.MOST_VALUES:,}), depth ({yaml.DEEPEST})" in security
    assert f"{archive.MOST_RECORDS:,} boots and trials" in security
    assert f"{console.MOST_CONSOLE >> 20} MiB on its console" in security
    assert f"{empty.SAMPLES} random blocks" in (ROOT / "docs/how-to/choose-where-disks-are.md").read_text()
    others = " ".join((ROOT / "docs/how-to/other-tools.md").read_text().split())
    fresh = sum(pattern.fresh for pattern in PATTERNS.values())
    assert fresh == 2 and f"{len(PATTERNS) - fresh} fixed patterns and two for first writes" in others


def test_how_much_slower_an_emulated_guest_was_in_a_real_run(tmp_path: Path) -> None:
    with Store(tmp_path / "store") as store:
        file = ROOT / "tests/golden/2026-11-22/exported/20261122-0938-cache-1b7c.run.gz"
        analysis = Analysis(store.load(archive.import_(store, file).id))
    ratios = {
        found.metric.name: time_ratio(found.metric.better, found.ratio)[0]
        for found in analysis.comparisons
        if (found.baseline, found.treatment) == ("host", "vm") and found.metric.measure != "host_cpu_seconds"
    }
    assert "vm" in analysis.emulated and "host" not in analysis.emulated
    least, most = min(ratios, key=ratios.__getitem__), max(ratios, key=ratios.__getitem__)
    assert (least, most) == ("disk.randwrite-4k-fsync.fsync_p50_seconds", "disk.randread-4k-qd1.p50_seconds")
    page = " ".join((ROOT / "docs/how-to/no-kvm.md").read_text().split())
    assert f"{ratios[least] - 1:.0%}".replace("%", " % more time than the host (the flush of a write)") in page
    assert f"and {ratios[most]:.1f} times its time (a read)" in page


def test_in_how_many_rounds_a_question_is_settled() -> None:
    source, rule = np.random.default_rng(20261122), DecisionRule(margin=math.log(1.03))

    def rounds(difference: float) -> float:
        runs = math.log1p(difference) + source.normal(0, 0.03 * math.sqrt(2), (300, rule.looks[-1]))
        return fmean(next(look for look in rule.looks if rule.look(run[:look]).stop) for run in runs)

    page = " ".join((ROOT / "docs/how-to/sure-figures.md").read_text().split())
    words = "a true difference of 10 % is settled in about {:.0f} rounds and no difference at all in about {:.0f};"
    assert words.format(rounds(0.10), rounds(0.0)) in page
    assert rounds(0.03) > 0.95 * rule.looks[-1], "stays undecided"


def test_what_the_readme_says_of_rounds_and_versions() -> None:
    readme, troubleshooting = (
        " ".join((ROOT / page).read_text().split()) for page in ("README.md", "docs/how-to/troubleshooting.md")
    )
    assert demonstration(load("quick")).rounds.max == 3 and "a demonstration of three rounds" in readme
    assert minimum_rounds(0.05) == 6 and "At 95 % an interval needs six rounds." in troubleshooting
    oldest = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["requires-python"].removeprefix(">=")
    qemu = ".".join(map(str, MINIMUM))
    assert f"Linux on x86-64, Python {oldest}, QEMU {qemu} or newer." in readme


@cache
def literals() -> str:
    """All text in the program's source, a line for each; what is filled in is an ellipsis."""
    found = []
    for path in (ROOT / "src").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.JoinedStr):
                parts = (part.value if isinstance(part, ast.Constant) else "…" for part in node.values)
                found.append("".join(map(str, parts)))
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                found.append(node.value)
    return "\n".join(" ".join(text.split()) for text in found)


def messages() -> list[str]:
    text = (ROOT / "docs/how-to/troubleshooting.md").read_text()
    return re.findall(r"^## `(.+)`$", text, re.MULTILINE)


@pytest.mark.parametrize("message", messages())
def test_the_messages_in_troubleshooting_are_printed(message: str) -> None:
    for part in message.split("…"):
        assert part.strip(" ,;:()") in literals(), part


def test_there_are_messages() -> None:
    assert len(messages()) > 5
