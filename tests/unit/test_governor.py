"""The governor of the host's CPUs: who may choose it, that all CPUs have it, and that it is put back. On stand-ins."""

from __future__ import annotations

import contextlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests.fake_machine import Argv, FakeMachine
from vmtax.core.records import Treatment
from vmtax.hypervisor import BootFailed
from vmtax.machine.local import LocalMachine
from vmtax.plan.schema import Plan, from_data
from vmtax.plan.vary import varied
from vmtax.testbed import parts
from vmtax.testbed.parts import Request, governor
from vmtax.testbed.parts.governor import Governor

PERFORMANCE = Treatment("vm", "vm", {"cpu.governor": "performance"})


def plan(*levels: str) -> Plan:
    data = {"name": "p", "layers": ["host", "vm"], "workloads": ["chess"]}
    return varied(from_data(data), [f"cpu.governor={','.join(levels)}"])


def tree(directory: Path, *governors: str, legal: str = "performance schedutil") -> list[Path]:
    """A stand-in for the files of the host's cpufreq, one policy for each of these governors."""
    made = []
    for number, text in enumerate(governors):
        policy = directory / f"policy{number}"
        policy.mkdir(parents=True)
        (policy / "scaling_available_governors").write_text(f"{legal} \n")
        made.append(policy / "scaling_governor")
        made[-1].write_text(f"{text}\n")
    return made


def asked(argv: Argv) -> bool:
    return argv[0] == "grep"


def host(listing: str, user: str = "0") -> FakeMachine:
    return FakeMachine("host", {asked: listing, ("id", "-u"): f"{user}\n"})


def listed(*policies: tuple[str, str]) -> str:
    lines = [
        f"{governor.POLICIES}/policy{number}/{name}:{text}\n"
        for number, pair in enumerate(policies)
        for name, text in zip((governor.NOW, governor.LEGAL), pair, strict=True)
    ]
    return "".join(lines)


def lacking(machine: FakeMachine, **more: Any) -> dict[str, str]:
    made = plan("as-set", "performance")
    return dict(Governor().lacking(Request(machine, made, made.treatments()[0], **more)))


def test_it_is_there_on_all_layers_where_every_cpu_offers_it() -> None:
    good = ("schedutil", "performance schedutil")
    assert lacking(host(listed(good, good))) == {}
    names = ["host cpu.governor=performance", "vm cpu.governor=performance"]
    for machine, why in (
        (host(""), "needs cpufreq, and the host has none"),
        (
            host(listed(good, ("powersave", "powersave"))),
            "is not offered by the host's cpufreq driver, which has powersave",
        ),
        (host(listed(("userspace", "userspace performance"))), "would lose the speed that "),
        (host(listed(("powersave", ""))), "is not offered by the host's cpufreq driver, which has none"),
        (host(listed(good), user="1000"), "needs root, to write"),
    ):
        said = lacking(machine)
        assert sorted(said) == names and f"cpu.governor=performance {why}" in said[names[0]]
    assert "not at the destination" in lacking(host(listed(good)), destination=object())["vm cpu.governor=performance"]


def test_a_plan_that_does_not_name_it_asks_the_host_nothing_and_says_nothing() -> None:
    made = from_data({"name": "p", "layers": ["vm"], "workloads": ["chess"]})
    request = Request(FakeMachine(), made, made.treatments()[0])
    assert Governor().lacking(request) == {} and Governor().announced(request) == ()
    named = plan("as-set", "performance")
    (line,) = Governor().announced(Request(FakeMachine(), named, named.treatments()[0]))
    assert (
        line.startswith("the governor performance for all CPUs of the host")
        and "put back, but for its own settings" in line
    )


def test_all_cpus_get_it_while_the_machines_are_up_and_then_what_they_had(tmp_path: Path) -> None:
    files = tree(tmp_path, "schedutil", "performance", "powersave")
    with contextlib.closing(LocalMachine()) as machine:
        undoing = governor.choose(machine, "performance", str(tmp_path))
        assert undoing is not None and {file.read_text().strip() for file in files} == {"performance"}
        governor.check(machine, PERFORMANCE, str(tmp_path))
        assert governor.choose(machine, "performance", str(tmp_path)) is None, "nothing is to be undone"
        files[2].write_text("ondemand\n")  # by somebody else
        with pytest.raises(BootFailed, match=r"policy2/scaling_governor is ondemand"):
            governor.check(machine, PERFORMANCE, str(tmp_path))
        governor.check(machine, Treatment("vm", "vm", {}), str(tmp_path))
        undoing.undo()
    assert [file.read_text().strip() for file in files] == ["schedutil", "performance", "ondemand"]


def test_it_is_put_back_if_the_run_ends_otherwise(tmp_path: Path) -> None:
    files = tree(tmp_path, "schedutil", "schedutil")
    with contextlib.closing(LocalMachine()) as machine:
        governor.choose(machine, "performance", str(tmp_path))
    assert [file.read_text().strip() for file in files] == ["schedutil", "schedutil"]


def test_each_configuration_holds_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    done: list[str] = []
    undoing = SimpleNamespace(undo=lambda: done.append("undone"))
    monkeypatch.setattr(governor, "choose", lambda host, level: done.append(level) or undoing)
    on: Any = SimpleNamespace(host=FakeMachine())
    with contextlib.ExitStack() as stack:
        parts.hold(on, Treatment("host", "host", {}), stack)
        parts.hold(on, PERFORMANCE, stack)
        assert done == ["performance"]
    assert done == ["performance", "undone"]
