"""Containers beside the host: the same work, in the same rounds, by the same programs."""

from __future__ import annotations

from pathlib import Path

from tests.integration.conftest import measured, vmtax
from vmtax.image.cache import Image
from vmtax.store import Store

PLAN = """\
name: lxc
layers: [host, container]
guest: {vcpus: 1, memory: 256MiB}
workloads:
  - chess: {depth: 7}
  - disk: {patterns: [randread-4k-qd1], size: 16MiB, seconds: 1}
  - net: {cases: [tcp-in], seconds: 1}
rounds: {min: 1, max: 1}
"""


def test_a_container_is_measured_beside_the_host(image: Image, tmp_path: Path) -> None:
    plan = tmp_path / "plan.yaml"
    plan.write_text(PLAN)
    data = measured(str(plan), directory=tmp_path)
    assert [note for note in data["notes"] if note.startswith("Containers are started by ")]
    with Store() as store:
        run = store.load(data["id"])
    assert {(trial.treatment, trial.machine) for trial in run.trials} == {
        ("host", "host"),
        ("container", "host/container"),
    }
    assert run.boots == (), "a container has no kernel of its own"
    both = {
        (trial.workload, trial.case): {each.treatment for each in run.trials if each.case == trial.case}
        for trial in run.trials
    }
    assert len(both) == 4 and all(seen == {"host", "container"} for seen in both.values())
    pairs = {(each["baseline"], each["treatment"]) for each in data["comparisons"]}
    assert pairs == {("host", "container")}
    page = vmtax("report", data["id"], "-o", "-", directory=tmp_path).stdout
    assert "a container costs" in page and "the container against the host" in page
    of_containers = f"vmtax-{'[0-9a-f]' * 16}-*"  # others belong to disks and servers of tests beside this one
    assert not list(Path("/sys/fs/cgroup").rglob(of_containers)), "no control group is left"
