"""What `plan check` says of a run is what the run says before it asks."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.fake_machine import FakeMachine
from tests.unit.test_on_windows import hosts
from tests.unit.test_preview import host
from vmtax.cli import checking, measuring, on_windows
from vmtax.cli.app import BadUse
from vmtax.cli.asked import GuestOptions, Measured, PlanChanges, Versions, WithoutKvm
from vmtax.cli.running import new_work
from vmtax.core.errors import BadInput
from vmtax.experiment import preview
from vmtax.hypervisor import Accelerator
from vmtax.machine.login_shell import WindowsThere
from vmtax.plan.asked import NotMeasured
from vmtax.store import Store
from vmtax.testbed.machines.on_windows import WindowsHosts
from vmtax.testbed.session.session import CannotMeasure
from vmtax.testbed.session.watching import Watching

On = Callable[..., None]


@pytest.fixture(autouse=True)
def on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> On:
    """A function that makes a fake the host under test, and says what is known of its KVM."""
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))

    def choose(machine: FakeMachine, accelerator: Accelerator | None = None) -> None:
        @contextlib.contextmanager
        def connected(*_: Any) -> Iterator[preview.Hosts]:
            yield preview.Hosts(machine, machine)

        for module in (checking, measuring):
            monkeypatch.setattr(module, "connected", connected)
        monkeypatch.setattr(preview, "known", lambda *_: accelerator)

    choose(host())
    return choose


def told_by_run(asked: Measured, plan: str, monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, str]]:
    """The lines before the question of a run whose host has KVM."""
    lines: list[tuple[str, str]] = []

    def asks(*_: Any) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(measuring, "_examined", lambda *_, **__: [])
    monkeypatch.setattr(measuring, "agree", asks)
    monkeypatch.setattr(measuring.progress, "tell", lambda told: lines.extend(told))
    with Store() as store, pytest.raises(KeyboardInterrupt):
        measuring._carry_out(store, new_work(plan, asked), [], yes=True)
    return [(what, text) for what, text in lines if what != "looks at"]


@pytest.mark.parametrize("root", [True, False])
@pytest.mark.parametrize(
    ("plan", "changes"),
    [
        ("quick", PlanChanges()),
        ("quick", PlanChanges(layers="host")),
        ("quick", PlanChanges(layers="vm", rounds=3)),
        ("quick", PlanChanges(budget="20m")),
        ("quick", PlanChanges(max_writes="1TiB")),
        ("quick", PlanChanges(vary=["disk.cache=none,writeback"])),
        ("disk-cache", PlanChanges()),
        ("disk-cache", PlanChanges(layers="vm", max_writes="2TiB")),
    ],
)
@pytest.mark.varied(4)
def test_a_check_says_what_the_run_says_before_it_asks(
    plan: str, changes: PlanChanges, root: bool, on: On, monkeypatch: pytest.MonkeyPatch
) -> None:
    on(host(root=root), Accelerator("kvm", "booted"))
    asked = Measured(changes)
    lines = checking.checked(plan, asked).lines
    told = told_by_run(asked, plan, monkeypatch)
    assert len(told) > 4 and "writes" in [what for what, _ in told]
    assert [text for what, text in told if f"{what}: {text}" not in lines and text not in lines] == []
    assert len(lines) == len(set(lines)), "nothing is said twice"


def test_a_check_of_other_options_is_of_another_run() -> None:
    (usual, less) = (
        "\n".join(checking.checked("quick", Measured(PlanChanges(layers=layers))).lines) for layers in (None, "host")
    )
    assert "nested" in usual and "nested" not in less and "writes: " in less and usual != less


@pytest.mark.parametrize(
    ("layers", "known", "without_kvm", "words"),
    [
        ("host,vm", None, WithoutKvm(), checking.NOT_TRIED),
        ("host,vm", Accelerator("kvm", "booted"), WithoutKvm(), ""),
        ("host,vm", Accelerator("tcg", "no /dev/kvm"), WithoutKvm(), "it would end there: add --emulate"),
        ("host,vm", Accelerator("tcg", "no /dev/kvm"), WithoutKvm(emulate=True), "emulated: no /dev/kvm; the figures"),
        ("host,vm", Accelerator("tcg", "no /dev/kvm"), WithoutKvm(or_demo=True), "a demo: 3 short rounds"),
        ("host", Accelerator("tcg", "no /dev/kvm"), WithoutKvm(), ""),
    ],
)
def test_a_check_says_what_is_known_of_kvm_without_a_boot(
    layers: str, known: Accelerator | None, without_kvm: WithoutKvm, words: str, on: On
) -> None:
    on(host(), known)
    lines = checking.checked("quick", Measured(PlanChanges(layers=layers), without_kvm=without_kvm)).lines
    starts = (checking.NOT_TRIED, "it would end", "emulated: ", "a demo: ")
    found = [line for line in lines if line.startswith(starts)]
    assert any(line.startswith(words) for line in found) if words else not found
    assert ("it would end" in "".join(found)) == words.startswith("it would end")


@pytest.mark.parametrize(
    ("machine", "asked", "words"),
    [
        (host(), Measured(versions=Versions(qemu="/no/qemu")), "cannot run: .*/no/qemu"),
        (host(), Measured(PlanChanges(max_writes="1GiB")), "cannot run: max_writes is 1.0 GiB"),
        (host(free=0), Measured(), "cannot run: .*free"),
        (host(unsafe="/var is anybody's"), Measured(), "cannot run: .*/var is anybody's"),
    ],
)
def test_what_prevents_the_run_on_its_host_is_the_last_line(
    machine: FakeMachine, asked: Measured, words: str, on: On
) -> None:

    on(machine)
    lines = checking.checked("quick", asked).lines
    assert lines[0].startswith("3 configurations: host, vm, nested"), "the advice about the plan stays"
    assert re.match(words, lines[-1])


def test_a_host_that_cannot_be_reached_leaves_the_advice(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def unreachable(*_: Any) -> Iterator[None]:
        raise CannotMeasure("ssh://far: no route to host")
        yield

    monkeypatch.setattr(checking, "connected", unreachable)
    lines = checking.checked("quick", Measured(PlanChanges(host="ssh://far"))).lines
    assert lines[-1] == "cannot run: ssh://far: no route to host" and len(lines) > 4


@pytest.mark.parametrize(
    ("emulation", "words"),
    [((False, ""), []), ((True, ""), ["the CPU of qemu:7 is emulated, as the names of its QEMU's threads say"])],
)
def test_a_watched_vm_that_is_emulated_is_said_to_be(
    emulation: tuple[bool, str], words: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = host()
    vm = Watching("qemu:7", machine, "boot/9", 7, None, None, lambda: "", "9", emulation)

    @contextlib.contextmanager
    def connected(*_: Any) -> Iterator[preview.Hosts]:
        yield preview.Hosts(machine, machine, existing=vm)

    monkeypatch.setattr(checking, "connected", connected)
    lines = checking.checked("idle", Measured(existing=GuestOptions(guest="qemu:7"))).lines
    assert [line[10:].partition(";")[0] for line in lines if line.startswith("emulated: ")] == words
    assert (lines[-1] == "it would end there: add --emulate to measure anyway") is emulation[0]


def test_a_host_with_windows_is_looked_at_as_a_run_does(monkeypatch: pytest.MonkeyPatch) -> None:
    @contextlib.contextmanager
    def windows(*_: Any) -> Iterator[WindowsHosts]:
        yield hosts()

    def connected(*_: Any) -> None:
        raise WindowsThere("host", "me@win", "cmd.exe")

    monkeypatch.setattr(checking, "connected", connected)
    monkeypatch.setattr(on_windows, "connected_to_windows", windows)
    asked = Measured(PlanChanges(host="ssh://me@win"), existing=GuestOptions(guest="ssh://win"))
    found = checking.checked("quick", asked)
    assert found.refused is None and len([line for line in found.lines if line.startswith("enters: ")]) == 2
    none = checking.checked("quick", Measured(PlanChanges(host="ssh://me@win")))
    assert none.refused and "is Windows, where vmtax starts no VM" in none.refused


@pytest.mark.parametrize(
    ("asked", "words"),
    [
        (Measured(without_kvm=WithoutKvm(emulate=True, or_demo=True)), "--or-demo only demonstrates"),
        (Measured(PlanChanges(rounds=3, budget="1h")), "--rounds says how many"),
        (Measured(PlanChanges(layers="cellar")), "--layers|layers"),
    ],
)
def test_options_that_run_refuses_are_refused(asked: Measured, words: str) -> None:
    with pytest.raises((BadUse, BadInput), match=words):
        checking.checked("quick", asked)


def test_the_answer_is_data() -> None:
    found = checking.checked("disk-cache", Measured(PlanChanges(vary=["disk.aio=native,threads"], rounds=10)))
    assert (found.plan, found.host, found.rounds, found.refused) == ("disk-cache", "local", 10, None)
    assert {one.levels["disk.cache"] for one in found.configurations} == {"none", "writeback", "writethrough"}
    assert {(one.code, tuple(one.factors)) for one in found.left_out} == {("illegal", ("disk.aio", "disk.cache"))}
    assert 0 < found.seconds.low < found.seconds.high and not found.seconds.measured
    assert found.bytes.prepared == 2**30 and 0 < found.bytes.expected < found.bytes.most
    assert found.bytes.memory > 2**30
    assert {"writes", "needs", "as root"} <= {action.what for action in found.actions}


def test_what_cannot_run_has_seconds_and_bytes_all_the_same(on: On) -> None:
    on(host(free=0))
    found = checking.checked("disk-cache", Measured())
    assert found.refused and not found.actions
    assert found.seconds.high > 0 and found.bytes.prepared == 2**30 and found.bytes.most > 0
    assert [line for line in found.lines if line.startswith("writes: 1.0 GiB to the disks under test, then over it")]


def test_a_level_that_the_host_lacks_is_left_out_of_a_built_in_plan_and_refused_where_it_was_typed(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(
        preview.parts, "lacking", lambda request: {"vm disk.cache=writeback": "disk.cache=writeback: no"}
    )
    found = checking.checked("disk-cache", Measured())
    assert [(one.code, one.factors) for one in found.left_out] == [("host", ["disk.cache"])]
    assert "vm disk.cache=writeback" not in [one.name for one in found.configurations]
    typed = Measured(PlanChanges(vary=["disk.cache=none,writeback"]))
    with pytest.raises(NotMeasured, match=r"^host: disk.cache=writeback: no$"):
        checking.checked("disk-cache", typed)
    with Store() as store, pytest.raises(NotMeasured):
        measuring._carry_out(store, new_work("disk-cache", typed), [], yes=True)


def test_guests_of_several_sizes_are_measured_where_there_is_room(on: On) -> None:
    on(host(), Accelerator("kvm", "booted"))
    with pytest.raises(NotMeasured, match=r"^host: guest.vcpus=64: the host has \d+ CPUs"):
        checking.checked("quick", Measured(PlanChanges(vary=["guest.vcpus=1,64"])))
    with pytest.raises(NotMeasured, match=r"^host: guest.vcpus=64: the host has \d+ CPUs"):
        checking.checked("quick", Measured(PlanChanges(vary=["guest.vcpus=64"])))
    with pytest.raises(
        NotMeasured, match=r"guest.memory=64GiB: .* are needed at a time, and the host has .* available"
    ):
        checking.checked("quick", Measured(PlanChanges(vary=["guest.memory=1g,64g"])))
    found = checking.checked("quick", Measured(PlanChanges(vary=["guest.vcpus=1,2", "guest.memory=512m,1g"])))
    assert "takes: host and containers get as many CPUs as the guests" in "\n".join(found.lines)
    assert "needs: 2 CPUs" in "\n".join(found.lines)
