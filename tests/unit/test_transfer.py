"""Workload `transfer`: what its sender and receiver print, which commands it gives, and where it is refused."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path, PurePosixPath, PureWindowsPath
from types import SimpleNamespace
from typing import Any, cast

import pytest

from tests.fake_machine import FakeMachine
from vmtax.cli.app import BadUse
from vmtax.cli.existing_vm import on_existing, without_existing
from vmtax.core.errors import BadInput
from vmtax.core.machines import Machine, Outcome
from vmtax.machine.local import LocalMachine
from vmtax.machine.windows.command import WindowsOutcome
from vmtax.machine.windows.machine import Windows, WindowsMachine
from vmtax.plan.schema import parse
from vmtax.testbed.session import examine
from vmtax.testbed.session.session import CannotMeasure
from vmtax.testbed.session.ways import Login
from vmtax.testbed.subjects import senders
from vmtax.testbed.subjects.existing import fitted, not_measured
from vmtax.workload import BadOutput
from vmtax.workload.site import Link, Site
from vmtax.workload.transfer import Transfer, TransferParameters

SAID = {"side": "receive", "bytes": 2_500_000_000, "seconds": 10.0, "cpu_seconds": 5.0, "far_cpu_seconds": 2.5}
PLAN = "{name: x, layers: [host, existing], workloads: [transfer]}"


def transfer(**parameters: object) -> Transfer:
    return Transfer(TransferParameters.model_validate(parameters))


def figures(case: str, one: Transfer | None = None, **changes: object) -> dict[str, float]:
    said = json.dumps({**SAID, **changes})
    return {each.metric.name: each.value for each in (one or transfer()).parse(case, said)}


def test_its_figures() -> None:
    assert figures("tcp-in") == {
        "transfer.tcp-in.bits_per_second": 2e9,
        "transfer.tcp-in.local_seconds_per_byte": 2e-9,
        "transfer.tcp-in.peer_seconds_per_byte": 1e-9,
    }
    assert transfer().operations("tcp-in", json.dumps(SAID)) == 2_500_000_000


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"side": "send"}, "an answer of receive was expected"),
        ({"bytes": 0}, "bytes"),
        ({"bytes": "many"}, "bytes"),
        ({"seconds": 0}, "seconds"),
        ({"cpu_seconds": -1}, "cpu_seconds"),
        ({"far_cpu_seconds": None}, "far_cpu_seconds"),
    ],
)
def test_what_cannot_be_is_refused(changes: dict[str, object], why: str) -> None:
    with pytest.raises(BadOutput, match=why):
        figures("tcp-in", **changes)


def test_a_rate_that_was_not_reached_is_full_load() -> None:
    assert figures("tcp-in", transfer(rate=2100))
    with pytest.raises(BadOutput, match=r"2e\+03 Mbit/s were reached of the 2200 .* lower workloads.transfer.rate"):
        figures("tcp-in", transfer(rate=2200))


def test_its_commands_on_both_systems() -> None:
    windows = cast("Any", SimpleNamespace(path="host/existing", os=Windows(PureWindowsPath("C:\\v"), "07")))
    there = Site(windows, "existing", 2, (), link=Link(windows, (), "192.168.122.1", 40000))
    assert transfer(rate=8).command(there, "tcp-out") == (
        *("C:\\v\\vmtax-net-07.exe", "send", "192.168.122.1", "40000", "10", "1000000"),
    )
    host = FakeMachine("host", {})
    here = Site(host, "host", 2, ("bwrap",), link=Link(host, ("ip", "netns"), "10.77.0.1", 7))
    assert transfer(seconds=1.5).command(here, "tcp-in") == ("vmtax-net", "receive", "10.77.0.1", "7", "1.5")
    assert transfer().seat(here) == (host, ("ip", "netns")), "outside of the image, which has no such program"


def test_only_a_windows_vm_has_it() -> None:
    plan = parse("{name: x, layers: [host, existing], workloads: [chess, transfer]}")
    linux = Login("ssh://web", cast("Machine", None), PurePosixPath("/var/tmp"))
    assert not_measured(plan, linux) == ["transfer"]
    assert [one.name for one in on_existing(parse(PLAN), None).workloads] == ["transfer"]
    with pytest.raises(BadUse, match="is for a Windows VM of yours: name it with --guest, or take net"):
        without_existing(parse("{name: x, layers: [host], workloads: [transfer]}"))


def test_a_linux_vm_can_measure_nothing_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Login, "size", lambda self: parse(PLAN).guest)
    with pytest.raises(BadInput, match="ssh://web can measure nothing of it: transfer is for Windows"):
        fitted(parse(PLAN), Login("ssh://web", cast("Machine", None), PurePosixPath("/var/tmp")))


@pytest.mark.parametrize(
    ("said", "is_root", "why"),
    [
        ("192.168.122.1 51514 192.168.122.77 22\n", True, ""),
        ("192.168.122.1 51514 192.168.122.77 22\n", False, "only root of host makes"),
        ("fe80::1 51514 fe80::2 22\n", True, "name it by its IPv4 address"),
        ("%SSH_CONNECTION%\n", True, "does not say from which IPv4 address"),
        ("", True, "does not say from which IPv4 address"),
    ],
)
def test_where_two_ends_cannot_be(monkeypatch: pytest.MonkeyPatch, said: str, is_root: bool, why: str) -> None:
    there = cast("WindowsMachine", SimpleNamespace(carry=lambda line: WindowsOutcome(said, "", 0)))
    local = LocalMachine()
    monkeypatch.setattr(examine, "is_root", lambda machine: is_root)
    try:
        if not why:
            senders.refuse("ssh://win", local, there)
            return
        with pytest.raises(CannotMeasure, match=f"ssh://win, transfer: .*{why}.*; or leave transfer out of the plan"):
            senders.refuse("ssh://win", local, there)
    finally:
        local.close()


@pytest.mark.parametrize(("code", "said"), [(0, ""), (1, "vmtax-net: connect: error 10060\n")])
def test_a_server_that_is_not_reached_is_refused_before_anything_is_measured(code: int, said: str) -> None:
    outcome = Outcome("host/existing", ("x",), code, "", said, 0.1)
    windows = SimpleNamespace(os=Windows(PureWindowsPath("C:\\v"), "07"), try_run=lambda *argv: outcome)
    link = Link(cast("Any", windows), (), "192.168.122.1", 40000)
    words = r"at 192.168.122.1, port 40000 .*error 10060\).*leave transfer out"
    with pytest.raises(CannotMeasure, match=words) if code else contextlib.nullcontext():
        senders.refuse_unreached("ssh://win", link)


def test_an_address_that_is_not_this_machine_s_has_no_server(tmp_path: Path) -> None:
    """The login came by a jump host, or by address translation."""
    program = tmp_path / "vmtax-net"
    program.write_text("#!/bin/sh\necho vmtax-net: bind: error 99 >&2; exit 1\n")
    connection = "203.0.113.9 51514 192.168.122.77 22\n"
    there = cast("WindowsMachine", SimpleNamespace(path="host", carry=lambda line: WindowsOutcome(connection, "", 0)))
    with contextlib.closing(LocalMachine()) as local:
        words = r"ssh://hv, transfer: its login comes from 203.0.113.9, where this machine has no server .*error 99"
        with pytest.raises(CannotMeasure, match=words):
            senders.open_far_end("ssh://hv", there, local, program)


def test_another_machine_is_not_its_host() -> None:
    with pytest.raises(CannotMeasure, match="run vmtax there"):
        senders.refuse("ssh://win", FakeMachine("host", {}), cast("WindowsMachine", None))
