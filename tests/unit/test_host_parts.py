"""What `doctor --try` makes on a host must not disturb its users."""

from __future__ import annotations

import subprocess
from pathlib import Path, PurePosixPath

import pytest

from tests.fake_machine import Argv, FakeMachine
from vmtax.core.errors import CannotDo
from vmtax.doctor import host_parts
from vmtax.network.sriov import CARDS, OTHERS_IN_GROUP, WRITE, NoCard, free_card


def is_asked(argv: Argv) -> bool:
    return argv[:2] == ("ip", "-o")


@pytest.mark.parametrize(
    ("line", "up"),
    [
        ("eth0 7 0 1 1 0", "2: eth0: <UP>\n"),
        ("eth0 7 2 1 1 0", ""),  # functions are in use
        ("eth0 0 0 1 1 0", ""),  # it can have none
        ("ib0 7 0 32 1 0", ""),  # InfiniBand
        ("eth0 7 0 1 2 0", ""),  # another port of the same device
        ("eth0 7 0 1 1 1", ""),  # down, but in a bridge
    ],
)
def test_a_card_in_use_is_left_alone(line: str, up: str) -> None:
    with pytest.raises(NoCard, match="every card with virtual functions is in use"):
        free_card(FakeMachine(answers={CARDS: f"{line}\n", is_asked: up}))
    both = FakeMachine(answers={CARDS: f"{line}\neth9 7 0 1 1 0\n", is_asked: [up, ""]})
    assert free_card(both) == "eth9"


def test_what_is_read_of_a_card(tmp_path: Path) -> None:
    for card, uppers, ports in (("eth0", (), ("eth0",)), ("eth1", ("upper_br0",), ("eth1", "eth2"))):
        (tmp_path / card / "device/net").mkdir(parents=True)
        for name in ports:
            (tmp_path / card / "device/net" / name).mkdir()
        for name in uppers:
            (tmp_path / card / name).mkdir()
        for file, text in (("device/sriov_totalvfs", "7"), ("device/sriov_numvfs", "0"), ("type", "1")):
            (tmp_path / card / file).write_text(f"{text}\n")
    (tmp_path / "lo").mkdir()
    *shell, script = CARDS
    done = subprocess.run([*shell, script.replace("/sys/class/net", str(tmp_path))], capture_output=True, text=True)
    assert done.stdout.splitlines() == ["eth0 7 0 1 1 0", "eth1 7 0 1 2 1"] and done.stderr == ""


@pytest.mark.parametrize(("now", "left"), [("9", "5"), ("512", "512")])
def test_huge_pages_that_somebody_else_has_set_meanwhile_stay(tmp_path: Path, now: str, left: str) -> None:
    count = tmp_path / "count"
    count.write_text(f"{now}\n")
    subprocess.run([*host_parts.GIVE_BACK, "5", "9", str(count)], check=True)
    assert count.read_text().strip() == left


def test_huge_pages_that_are_not_there_are_given_back() -> None:
    host = FakeMachine(
        answers={
            host_parts.HUGE_PAGE_COUNT: "/node0\n",
            ("cat", "/node0"): ["5\n", "7\n"],
            (*WRITE, "9", "/node0"): "",
            (*WRITE, "5", "/node0"): "",
        }
    )
    with pytest.raises(CannotDo, match="no 4 free pages"):
        host_parts._huge_pages(host)
    assert host.unused() == []


def test_undoing_finds_nothing_where_nothing_is(tmp_path: Path) -> None:
    gone = str(tmp_path / "gone")
    for argv in (
        (*host_parts.DETACH, gone),
        (*host_parts.UNMOUNT, gone),
        (*host_parts.NO_GROUP, "vmtax-gone", *host_parts.ANY_DEVICE),
        (*host_parts.NO_POOL, "vmtax-gone"),
        (*host_parts.NO_ARRAY, gone, str(PurePosixPath(gone) / "file")),
    ):
        assert subprocess.run(argv, capture_output=True, text=True).returncode == 0, argv


def test_a_group_is_given_away_where_nothing_else_in_it_has_a_driver_of_the_host(tmp_path: Path) -> None:
    for name, driver in (
        ("01:10.0", None),
        ("00:01.0", "pcieport"),
        ("01:10.2", "vfio-pci"),
        ("01:00.0", "igb"),
        ("x", None),
    ):
        device = tmp_path / "devices" / name
        device.mkdir(parents=True)
        if driver is not None:
            (tmp_path / driver).mkdir(exist_ok=True)
            (device / "driver").symlink_to(tmp_path / driver)
    group = tmp_path / "devices/01:10.0/iommu_group"
    group.mkdir()
    (group / "devices").symlink_to(tmp_path / "devices")
    done = subprocess.run(
        [*OTHERS_IN_GROUP, str(tmp_path / "devices/01:10.0")], capture_output=True, text=True, check=True
    )
    assert done.stdout == "01:00.0\n"
