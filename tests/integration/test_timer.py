"""The units of the page about many hosts, as systemd itself reads them."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest

pytestmark = pytest.mark.machines  # it needs a package
PAGE = Path(__file__).parents[2] / "docs/how-to/many-hosts.md"
UNIT = re.compile(r"^```ini\n# (vmtax\.\w+)\n(.*?)^```$", re.M | re.S)


def units(place: Path) -> dict[str, str]:
    """The units of the page, written there, with a program that is there in place of vmtax."""
    found = dict(UNIT.findall(PAGE.read_text(encoding="utf-8")))
    for name, text in found.items():
        (place / name).write_text(re.sub(r"^(ExecStart\w*=)vmtax ", r"\1/bin/true ", text, flags=re.M))
    return found


def verified(*units: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["systemd-analyze", "verify", *map(str, units)], capture_output=True, text=True)


def test_systemd_reads_the_units_and_knows_when_they_run(tmp_path: Path) -> None:
    found = units(tmp_path)
    assert {*found} == {"vmtax.service", "vmtax.timer"} and found["vmtax.service"].count("=vmtax ") == 2
    done = verified(tmp_path / "vmtax.service", tmp_path / "vmtax.timer")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    when = re.findall(r"^OnCalendar=(.*)$", found["vmtax.timer"], re.M)
    done = subprocess.run(["systemd-analyze", "calendar", *when], capture_output=True, text=True, check=True)
    assert "Next elapse: Mon " in done.stdout, "once a week"


def test_a_unit_that_systemd_would_ignore_in_part_is_noticed(tmp_path: Path) -> None:
    units(tmp_path)
    timer = tmp_path / "vmtax.timer"
    timer.write_text(timer.read_text().replace("OnCalendar", "OnCalender"))
    assert "Unknown key 'OnCalender'" in verified(timer).stderr
