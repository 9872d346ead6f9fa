"""Whether guests run on KVM, which only a guest can show; a guest that is scripted, nothing boots."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from tests import rights
from tests.fake_machine import FakeMachine, Reply
from vmtax.hypervisor import Qemu
from vmtax.hypervisor.base import BootFailed, BootPatience, GuestSpec
from vmtax.hypervisor.qemu import accelerator
from vmtax.hypervisor.qemu.accelerator import Accelerator, choose, known, probe_spec
from vmtax.image.place import Placed
from vmtax.machine import MachineLost

QEMU = Qemu(("qemu",), "10.0", "QEMU 10.0")
SPEC = probe_spec(QEMU, Placed("kernel", "initrd", "root", "tree"))
LOST = MachineLost("host/probe: the connection is gone")
PANIC = BootFailed("host/probe: QEMU ended\nqemu: error: kvm run failed\nconsole:")
SILENT = BootFailed("host/probe: its console has been silent for 20 s\nconsole:", silent=True)


class Probes:
    """Stands in for `boot`: the first boots fail as `failures` say."""

    def __init__(self, *failures: Exception) -> None:
        self.failures = list(failures)
        self.tried: list[BootPatience] = []

    @contextlib.contextmanager
    def boot(self, parent: object, spec: GuestSpec, *access: object, patience: BootPatience) -> Iterator[None]:
        assert spec.accelerator == "kvm"
        self.tried.append(patience)
        if self.failures:
            raise self.failures.pop(0)
        yield


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))


def host(alive: bool = True, boot: str = "one") -> FakeMachine:
    answers: Any = {
        rights.asked: rights.answer(),
        ("cat", "/proc/sys/kernel/random/boot_id"): boot,
        ("true",): Reply(code=0 if alive else 1),
    }
    return FakeMachine(answers=answers)


def chosen(
    probes: Probes, monkeypatch: pytest.MonkeyPatch, machine: FakeMachine, *, again: bool = False
) -> Accelerator:
    monkeypatch.setattr(accelerator, "boot", probes.boot)
    local: Any = SimpleNamespace(token="0123", remove_later=lambda path: SimpleNamespace(undo=lambda: None))
    access: Any = None
    return choose(machine, SPEC, access, local, lambda event: None, again=again)


@pytest.mark.parametrize(
    ("failures", "name", "words"),
    [
        ((), "kvm", ""),
        ((PANIC,), "kvm", ""),
        ((SILENT,), "kvm", ""),
        ((LOST,), "kvm", ""),
        ((SILENT, PANIC), "tcg", "qemu: error: kvm run failed"),
        ((PANIC, SILENT), "tcg", "its console fell silent for 20 s"),
        ((PANIC, LOST), "tcg", "the connection is gone"),
    ],
)
def test_a_guest_that_is_lost_once_is_tried_again_with_more_patience(
    failures: tuple[Exception, ...], name: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    probes, machine = Probes(*failures), host()
    found = chosen(probes, monkeypatch, machine)
    assert found.name == name and words in found.reason and found.tried
    assert probes.tried == [accelerator.SOON, accelerator.PATIENCE][: len(failures) + (name == "kvm")]
    assert accelerator.SOON.ready < accelerator.PATIENCE.ready and accelerator.SOON.silence is None
    assert known(machine, QEMU) == found, "remembered"


def test_what_is_remembered_is_of_one_boot_of_the_host_and_is_tried_again_if_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert chosen(Probes(PANIC, PANIC), monkeypatch, host()).name == "tcg"
    probes = Probes()
    assert chosen(probes, monkeypatch, host()).name == "tcg" and probes.tried == []
    assert known(host(boot="two"), QEMU) is None
    assert chosen(probes, monkeypatch, host(boot="two")).name == "kvm"
    assert chosen(probes, monkeypatch, host(), again=True).name == "kvm" and len(probes.tried) == 2


def test_a_host_that_is_lost_shows_nothing_about_kvm(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(MachineLost):
        chosen(Probes(LOST), monkeypatch, host(alive=False))
    assert known(host(), QEMU) is None


@pytest.mark.parametrize("text", ["", "{", "[]", pytest.param(10**5 * "[", id="deep")])
def test_what_is_no_list_of_what_is_known_is_forgotten(text: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert chosen(Probes(PANIC, PANIC), monkeypatch, host()).name == "tcg"
    accelerator._file().write_text(text)
    assert known(host(), QEMU) is None
