"""On a host whose CPUs are not alike, guests and host layer run on the same ones: a real QEMU shows it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import subprocess
from pathlib import Path

import pytest

from tests.integration.conftest import HANGS, VMTAX
from tests.topologies import Cores, files
from vmtax.hypervisor import Accelerator, BootFailed, Credentials, Guest, Qemu
from vmtax.hypervisor.qemu.guest import QemuGuest
from vmtax.image.cache import Image
from vmtax.image.place import Placed
from vmtax.machine.local import LocalMachine
from vmtax.plan.schema import parse as parse_plan
from vmtax.storage import Target
from vmtax.testbed.host.cpus import bound, parse
from vmtax.testbed.layers.boots import boot_guest, host_spec
from vmtax.testbed.parts import Order
from vmtax.testbed.session.examine import Platform
from vmtax.testbed.session.session import Session
from vmtax.testbed.subjects.provisioned import Provisioned

RUN = """\
name: equal-tiny
layers: [host, vm]
guest: {vcpus: 1, memory: 512MiB}
workloads:
  - cpuid: {seconds: 1}
rounds: {min: 1, max: 1}
"""
PLAN = parse_plan("name: x\nlayers: [host, vm]\nguest: {vcpus: 1, memory: 512MiB}\nworkloads: [chess]\n")
SLOW_FIRST = (Cores(1, kind="cpu_atom", top=3.8), Cores(1, kind="cpu_core", top=4.9))


def host(local: LocalMachine, image: Image, qemu: Qemu, placed: Placed, cores: tuple[Cores, ...]) -> Provisioned:
    """This machine, with the CPUs that another kernel shows."""
    return Provisioned(
        session=Session(local, image, Credentials.make(local), lambda event: None),
        host=local,
        plan=PLAN,
        workloads=PLAN.build_workloads(emulated=True),
        placed=placed,
        topology=parse(files(*cores, room="64000000")),
        unbound="",
        is_root=True,
        why_warm="",
        host_emulated=False,
        target=Target(),
        platform=Platform(qemu, Accelerator("tcg", "")),
    )


def booted(on: Provisioned, stack: contextlib.ExitStack) -> Guest:
    treatment = next(one for one in PLAN.treatments()[0] if one.layer == "vm")
    return boot_guest(on, Order(on.host, host_spec(on, treatment, None)), stack)


def affinities(local: LocalMachine, guest: Guest) -> dict[bool, set[str]]:
    """Whether a thread of its QEMU runs a CPU of the guest -> the CPUs on which those threads may run."""
    found: dict[bool, set[str]] = {}
    for thread in guest.threads(local):
        found.setdefault(thread.vcpu is not None, set()).add(thread.cpus)
    return found


def test_a_guest_is_kept_on_the_cpus_that_the_host_layer_gets(
    local: LocalMachine, image: Image, qemu: Qemu, placed: Placed
) -> None:
    on = host(local, image, qemu, placed, SLOW_FIRST)
    assert on.cpus == "1" and on.kept() == ("taskset", "-c", "1")
    with contextlib.ExitStack() as stack:
        assert affinities(local, booted(on, stack)) == {True: {"1"}, False: {"1"}}


@pytest.mark.machines
def test_where_all_cpus_are_alike_a_guest_runs_on_all(
    local: LocalMachine, image: Image, qemu: Qemu, placed: Placed
) -> None:
    alike = host(local, image, qemu, placed, (Cores(2),))
    with contextlib.ExitStack() as stack:
        assert affinities(local, booted(alike, stack)) == {True: {"0-1"}, False: {"0-1"}}


def test_a_guest_whose_threads_are_elsewhere_is_no_result(
    local: LocalMachine, image: Image, qemu: Qemu, placed: Placed, monkeypatch: pytest.MonkeyPatch
) -> None:
    seen = QemuGuest.threads
    monkeypatch.setattr(
        QemuGuest, "threads", lambda self, parent: tuple(dataclasses.replace(t, cpus="0") for t in seen(self, parent))
    )
    with contextlib.ExitStack() as stack, pytest.raises(BootFailed, match="elsewhere than on the CPUs 1, which every"):
        booted(host(local, image, qemu, placed, SLOW_FIRST), stack)


def test_memory_is_bound_with_the_cpus() -> None:
    told = ("grep", "-E", "Cpus_allowed_list|Mems_allowed_list", "/proc/self/status")
    done = subprocess.run((*bound("1", 0), *told), capture_output=True, text=True, timeout=HANGS, check=True)
    assert "Cpus_allowed_list:\t1\n" in done.stdout
    policy = subprocess.run((*bound("1", 0), "cat", "/proc/self/numa_maps"), capture_output=True, text=True, check=True)
    assert {line.split()[1] for line in policy.stdout.splitlines()} == {"bind:0"}
    missing = subprocess.run((*bound("1", 63), "true"), capture_output=True, text=True)
    assert missing.returncode != 0 and "set_mempolicy: Invalid argument" in missing.stderr


@pytest.mark.machines
def test_a_whole_run_says_which_cpus_all_layers_had(image: Image, tmp_path: Path) -> None:
    """Mounted over /sys where the run reads it: the second CPU is in a second socket."""
    socket, plan = tmp_path / "topology", tmp_path / "plan.yaml"
    socket.mkdir()
    (socket / "physical_package_id").write_text("1\n")
    (socket / "core_cpus_list").write_text("1\n")
    plan.write_text(RUN)
    script = 'mount --bind "$0" /sys/devices/system/cpu/cpu1/topology && exec "$@"'
    command = ("unshare", "--mount", "sh", "-c", script, str(socket), *VMTAX, "run", str(plan), "--yes", "--emulate")
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path)}
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=HANGS)
    said = " ".join((done.stdout + done.stderr).split())
    assert done.returncode == 0, said[-600:]
    assert said.count("CPUs 0 for every layer; guests keep off 1 other CPU") >= 2, "before and after"
