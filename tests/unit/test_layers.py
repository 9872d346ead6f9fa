"""What is set up for a treatment, and what is done if it is lost meanwhile: guests that are scripted, nothing boots."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_machine import Answers, Argv, FakeClock, FakeMachine
from vmtax.core.records import Treatment
from vmtax.hypervisor import Accelerator, BootFailed, GuestSpec, Qemu
from vmtax.image.place import Placed
from vmtax.machine import MachineLost
from vmtax.plan.schema import parse
from vmtax.storage import Target
from vmtax.storage.page_cache import HIERARCHY
from vmtax.testbed import layers
from vmtax.testbed.host.cpus import Cpu, CpuTopology
from vmtax.testbed.layers import boots, opening
from vmtax.testbed.session.examine import Platform
from vmtax.testbed.subjects.provisioned import Provisioned

PLAN = parse("{name: x, layers: [host, vm], guest: {vcpus: 1}, workloads: [disk], budget: none}")
DROP: Argv = ("tee", "/proc/sys/vm/drop_caches")
LOST = MachineLost("host: the connection is gone")
HOST, VM = Treatment("host", "host"), Treatment("vm", "vm")
BOUNDED = Treatment("vm bounded", "vm", {"disk.cache": "writeback", "disk.page_cache": "bounded"})


class Guests:
    """Stands in for `boot`: the first boots fail as `failures` say, the others come up."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.specs: list[GuestSpec] = []  # of each boot
        self.up = 0  # guests that run

    @contextlib.contextmanager
    def boot(self, parent: object, spec: GuestSpec, *access: object, **how: object) -> Iterator[Any]:
        self.specs.append(spec)
        if self.failures:
            raise self.failures.pop(0)
        self.up += 1
        try:
            yield SimpleNamespace(
                path="host/vm",
                spec=spec,
                machine=FakeMachine("host/vm", {("sync",): "", DROP: ""}),
                warnings=[],
                obtained={},
                memory_readings=lambda parent: {},
                cause_of_death=lambda: None,
            )
        finally:
            self.up -= 1


@pytest.fixture(autouse=True)
def clock(monkeypatch: pytest.MonkeyPatch) -> FakeClock:
    clock = FakeClock()
    monkeypatch.setattr(opening.time, "sleep", clock.sleep)
    return clock


@pytest.fixture
def booting(monkeypatch: pytest.MonkeyPatch) -> Guests:
    guests = Guests()
    monkeypatch.setattr(boots, "boot", guests.boot)
    return guests


def on(answers: Answers | None = None, *, emulated: bool = False) -> Provisioned:
    """A host on which nothing is set up, and which answers so besides."""
    known: Answers = {("sync",): "", DROP: "", **(answers or {})}
    session: Any = SimpleNamespace(credentials=None, local=SimpleNamespace(token="0123456789"))
    return Provisioned(
        session=session,
        host=FakeMachine("host", known),
        plan=PLAN,
        workloads=PLAN.build_workloads(),
        placed=Placed("kernel", "initrd", "root", "tree"),
        topology=CpuTopology((Cpu(0, 0), Cpu(1, 1))),
        unbound="",
        is_root=True,
        why_warm="",
        host_emulated=False,
        target=Target(),
        platform=Platform(Qemu(("qemu",), "10.0", "QEMU 10.0"), Accelerator("tcg" if emulated else "kvm", "tried")),
    )


def test_a_lost_host_is_not_set_up_once_more(booting: Guests) -> None:
    with pytest.raises(MachineLost, match="the connection is gone"), layers.opened(on({("sync",): [LOST, ""]}), HOST):
        pass
    assert booting.specs == []


@pytest.mark.parametrize(
    ("failure", "tries"),
    [
        (LOST, 2),
        (BootFailed("host/vm: QEMU ended\nconsole:", qemu_died=True), 2),
        (BootFailed("host/vm: the guest kernel panicked\nconsole:"), 1),
    ],
)
def test_a_guest_is_booted_once_more_where_it_was_lost_and_its_warnings_say_so(
    failure: Exception, tries: int, booting: Guests
) -> None:
    booting.failures = [failure]
    with contextlib.ExitStack() as stack:
        if tries == 1:
            with pytest.raises(BootFailed):
                stack.enter_context(layers.opened(on(), VM))
        else:
            (guest,) = stack.enter_context(layers.opened(on(), VM)).guests
            assert guest.warnings == [f"second-boot: {str(failure).splitlines()[0]}"] and booting.up == 1
    assert len(booting.specs) == tries and booting.up == 0


def test_a_guest_that_is_lost_twice_is_lost(booting: Guests) -> None:
    booting.failures = [LOST, LOST]
    with pytest.raises(MachineLost), layers.opened(on(), VM):
        pass
    assert len(booting.specs) == 2


def test_an_emulated_guest_that_panics_is_booted_once_more(booting: Guests) -> None:
    booting.failures = [BootFailed("host/vm: the guest kernel panicked\nconsole:")]
    with layers.opened(on(emulated=True), VM):
        assert len(booting.specs) == 2


def test_beside_a_bounded_page_cache_a_guest_has_all_of_its_memory_from_the_start(booting: Guests) -> None:
    """Else what it takes later is charged to the cgroup whose limit is meant for the page cache."""

    def of_cgroup(argv: Argv) -> bool:
        return argv[0] in ("mkdir", "tee", "cat") and argv[1].startswith("/sys/fs/cgroup/vmtax-01234567-")

    host = on({HIERARCHY: "/sys/fs/cgroup memory.max", of_cgroup: "anon 1000\nshmem 24\n"})
    with layers.opened(host, BOUNDED):
        (spec,) = booting.specs
        assert spec.preallocated and spec.within[-1].startswith("/sys/fs/cgroup/vmtax-01234567-")
    with layers.opened(on(), VM):
        assert not booting.specs[1].preallocated and booting.specs[1].within == ()
