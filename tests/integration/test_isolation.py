"""CPUs of a host that guests on KVM have alone, in a lab: nothing else runs there, and all is put back, also after
SIGKILL.
"""

from __future__ import annotations

import json
import shlex
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.integration.conftest import HANGS, VMTAX, leftovers
from vmtax.core.units import cpu_numbers
from vmtax.image.cache import Image
from vmtax.lab.home import lab

pytestmark = pytest.mark.machines

NAME = "isolation"
PLAN = """\
name: isolation
layers: [vm]
guest: {vcpus: 1, memory: 512MiB}
factors: {cpu.isolation: [partition]}
workloads: [{idle: {seconds: 3}}]
rounds: {min: 1, max: 1}
"""
# Busy programs of the host's: one that is held to the CPU that guests will have, and one that may run anywhere. They
# are stopped until a partition is there, so that an emulated host gets that far.
BUSY = """\
for cpus in 1 1-2; do taskset -c $cpus sh -c 'kill -STOP $$; while :; do :; done' > /dev/null 2>&1 & echo $!; done
"""
# Prints where all threads but the kernel's workers may run, which it moves as it likes.
WHERE = """\
import json, os, pathlib
found = {}
for task in pathlib.Path("/proc").glob("[0-9]*/task/[0-9]*"):
    try:
        name, _, fields = task.joinpath("stat").read_text().partition("(")[2].rpartition(")")
        if not name.startswith(("kworker", "migration", "ksoftirqd")):
            found[task.name + " " + fields.split()[19]] = [name, sorted(os.sched_getaffinity(int(task.name)))]
    except OSError:
        pass
print(json.dumps(found))
"""
# Waits for a partition, then looks where the programs run. Arguments: their process ids.
WATCH = """\
import json, os, pathlib, signal, sys, time
root = pathlib.Path("/sys/fs/cgroup")
while not (there := [each for each in root.glob("vmtax-*-cpus-1")]) or (
    there[0] / "cpuset.cpus.partition"
).read_text() != "isolated\\n":
    time.sleep(0.02)
for each in sys.argv[1:]:
    os.kill(int(each), signal.SIGCONT)
time.sleep(1)
on = [
    int(pathlib.Path("/proc", each, "stat").read_text().rpartition(")")[2].split()[36])
    for _ in range(50)
    for each in sys.argv[1:]
    if time.sleep(0.01) is None
]
for each in sys.argv[1:]:
    os.kill(int(each), signal.SIGSTOP)
print(json.dumps({
    "isolated": (root / "cpuset.cpus.isolated").read_text().strip(),
    "left": (root / "cpuset.cpus.effective").read_text().strip(),
    "members": (there[0] / "cgroup.threads").read_text().split(),
    "names": [
        pathlib.Path("/proc", each, "comm").read_text().strip()
        for each in (there[0] / "cgroup.threads").read_text().split()
    ],
    "on": sorted(set(on)),
}))
"""
# Waits until no partition is left, and prints the controllers that are on for children.
GONE = """\
cd /sys/fs/cgroup; until ! ls -d vmtax-* > /dev/null 2>&1; do sleep 0.1; done; cat cgroup.subtree_control
"""


def vmtax(*argv: str) -> str:
    done = subprocess.run([*VMTAX, *argv], capture_output=True, text=True, timeout=HANGS)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def in_lab(*argv: str) -> str:
    return vmtax("lab", "ssh", NAME, "--", argv[0] if len(argv) == 1 else shlex.join(argv))


def seen_during(run: subprocess.Popen[str], *busy: str) -> str:
    """What WATCH prints. A run that ends before it has seen anything fails, with what that said."""
    words = shlex.join(("timeout", f"{HANGS:.0f}", "python3", "-c", WATCH, *busy))
    watch = subprocess.Popen([*VMTAX, "lab", "ssh", NAME, "--", words], stdout=subprocess.PIPE, text=True)
    try:
        while watch.poll() is None:
            assert run.poll() is None or watch.wait(30.0) is not None, run.communicate()[0]
            time.sleep(0.5)
        return watch.communicate()[0]
    except BaseException:
        for process in (watch, run):
            process.kill()
        raise


def where() -> dict[str, Any]:
    found = json.loads(in_lab("python3", "-c", WHERE))
    assert isinstance(found, dict)
    return found


@pytest.fixture
def host(image: Image, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for kind in ("DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    monkeypatch.chdir(tmp_path)
    vmtax("lab", "start", NAME, "--spares", "0")
    try:
        yield f"lab:{NAME}"
    finally:
        up = lab(NAME).up()
        vmtax("lab", "stop", NAME)
    assert up is not None and leftovers(up.token) == []


def test_nothing_else_runs_on_a_guest_s_cpus_and_all_is_put_back_however_a_run_ends(host: str, tmp_path: Path) -> None:
    (tmp_path / "isolation.yaml").write_text(PLAN)
    busy = in_lab(BUSY).split()
    before, controllers = where(), in_lab(GONE)
    for is_killed in (True, False):
        run = subprocess.Popen(
            [*VMTAX, "run", "isolation.yaml", "--host", host, "--emulate", "--yes"],
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        seen = json.loads(seen_during(run, *busy))
        if is_killed:
            run.kill()
        said, _ = run.communicate(timeout=HANGS)
        assert is_killed or run.returncode == 0, said
        # The lab's own kernel isolates CPU 0 at its boot, on which the kernel lets programs run meanwhile.
        assert set(cpu_numbers(seen["isolated"])) - {0} == {1}
        assert seen["on"] and 1 not in seen["on"], "both programs are kept off, also the one that is held there"
        assert "1" not in seen["left"] and len(seen["members"]) == 1 and seen["names"][0].startswith("CPU 0/KVM")
        assert in_lab(GONE) == controllers
        after = where()
        assert {each: after[each] for each in before if each in after} == {
            each: before[each] for each in before if each in after
        }
        assert len(before.keys() & after.keys()) > 20
    (whole,) = [each["id"] for each in json.loads(vmtax("runs", "--json"))["data"] if each["state"] == "complete"]
    got = [boot["obtained"] for boot in json.loads(vmtax("show", "--json", whole))["data"]["boots"]]
    assert got and all((each["cpu.isolated_cpus"], each["cpu.strangers"]) == (1, 0) for each in got)
