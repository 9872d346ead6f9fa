"""How labs stand still, are stopped and end, and what is said of it."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from unittest.mock import MagicMock

import pytest

from tests.sample_lab import DONE, FAILED, FULL, RUNS, STILL, home, made, qemu_that_says, quiet, told
from vmtax.lab.end import GO_ON, stop
from vmtax.lab.home import Lab, LabError, Up, write
from vmtax.lab.reach import why_gone
from vmtax.lab.start import Wish, start
from vmtax.machine import MachineError, MachineLost
from vmtax.machine.guarded import Guard
from vmtax.machine.local import LocalMachine

__all__ = ["home"]


def test_a_lab_whose_saving_was_killed_goes_on(tmp_path: Path) -> None:
    path = tmp_path / "qmp"
    refused = '{"error": {"desc": "Migration is not finalized yet"}}'
    with qemu_that_says(path, cont=[refused, refused, DONE]) as asked:
        subprocess.run((*GO_ON, str(path)), check=True, timeout=300)
    assert asked == ["qmp_capabilities", "migrate_cancel", "cont", "cont", "cont"]
    subprocess.run((*GO_ON, str(tmp_path / "gone")), check=True, timeout=300)


@pytest.fixture
def blue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    """A lab that is up, by its records, whose socket no process listens at."""
    one = made()
    write(one.up_file, Up("t", 1, 2222, "/k", "/k", str(tmp_path / "qmp"), 0.0, 5.0, 7.0, "because", None))
    monkeypatch.setattr("vmtax.lab.home.is_marked", lambda pid, token: True)
    return one


def test_a_lab_that_stands_still_says_so_why_and_what_helps(blue: Lab, tmp_path: Path) -> None:
    cure = "then vmtax lab start blue; or vmtax lab cut blue"
    still = f"is paused: the file system of {blue.directory} is full; make room, {cure}"
    with qemu_that_says(tmp_path / "qmp", query_status=[STILL], query_block=[FULL]):
        assert why_gone(blue) == f"lab blue {still}"
        assert still.replace(" ", "") in told("status", "blue").replace(" ", "")
        assert still in json.loads(told("status", "blue", "--json"))["data"]["warnings"]
        assert told("list").endswith(f"; it {still}")
        with pytest.raises(LabError, match=r"lab blue is paused: .* is full; make room"):
            start(blue, Wish(), quiet)
    (tmp_path / "qmp").unlink()
    with qemu_that_says(tmp_path / "qmp", query_status=[STILL], query_block=[FAILED]):
        assert why_gone(blue) == f"lab blue is paused: the file system of {blue.directory} failed; repair it, {cure}"
    (tmp_path / "qmp").unlink()
    with qemu_that_says(tmp_path / "qmp", query_status=[RUNS]):
        assert why_gone(blue) == "" and "paused" not in told("list") + told("status", "blue")


def test_a_paused_lab_goes_on_only_if_it_still_does_a_moment_later(
    blue: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("vmtax.lab.monitor.AGAIN_SECONDS", 0.2)
    for path, after_it, goes_on in ((tmp_path / "qmp", [RUNS], True), (tmp_path / "qmp", [RUNS, STILL], False)):
        with qemu_that_says(path, query_status=[STILL, *after_it], query_block=[FULL]) as asked:
            if goes_on:
                assert (
                    told("start", "blue")
                    == "lab blue was paused, as happens when the disk here is full; it continues now"
                )
            else:
                with pytest.raises(LabError, match="lab blue is paused"):
                    start(blue, Wish(), quiet)
            assert "cont" in asked
        path.unlink()


def test_stop_is_no_power_cut_in_disguise(blue: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    killed: list[Up] = []
    monkeypatch.setattr("vmtax.lab.end._kill", killed.append)
    monkeypatch.setattr("vmtax.lab.end.gone", lambda up, seconds: False)
    monkeypatch.setattr("vmtax.lab.end._wait_for_guard", lambda one, up: None)
    words = "is full; make room, then vmtax lab start blue; or vmtax lab cut blue"
    with (
        qemu_that_says(tmp_path / "qmp", query_status=[STILL], query_block=[FULL]),
        pytest.raises(LabError, match=words),
    ):
        stop(blue)
    full = MachineError("host: the undo list cannot be written: No space left on device")
    monkeypatch.setattr("vmtax.lab.end.reach", MagicMock(side_effect=full))
    with pytest.raises(LabError, match=r"cannot be asked .* as it is: .*No space left on device; vmtax lab cut blue"):
        stop(blue)
    assert killed == [], "only who says `cut` cuts"
    monkeypatch.setattr("vmtax.lab.end.reach", MagicMock())
    with pytest.raises(LabError, match="did not shut down within 60 s: its power was cut"):
        stop(blue)
    assert killed == [blue.up()]
    monkeypatch.setattr("vmtax.lab.end.gone", lambda up, seconds: True)
    assert told("stop", "blue") == "lab blue is off"


def test_the_end_of_a_lab_is_shown_by_its_kernel_or_its_qemu() -> None:
    one = made()
    assert one.why_off() == "lab blue is off" == why_gone(one)
    one.log.write_text("qemu: cannot do it\nqemu: terminating on signal 15\n")
    assert one.why_off() == "lab blue is off, its QEMU said: qemu: cannot do it"
    (one.directory / "console.log").write_bytes(
        b"vmtax: ready\n[   9.1] Kernel panic - not syncing: Oops\r\n[ 9.2] CPU: 0\n"
    )
    assert why_gone(one) == "lab blue is off, its kernel said: Kernel panic - not syncing: Oops"
    assert "its kernel said: Kernel panic - not syncing: Oops" in told("status", "blue")


# Answers as a guard does that was told a word, after its source text.
GREET = """\
while read -r line; do case $line in '{"token"'*) break;; esac; done
word=${line##*'"nonce": "'}; echo '{"hello": "'"${word%'"'*}"'"}'; """


def test_a_guard_that_is_lost_with_its_lab_gives_the_same_reason() -> None:
    class Gone(LocalMachine):
        def _start_guard(self) -> Guard:
            answer = 'echo \'{"recovered": 0, "left": [], "last": 0}\'; read line; echo "no line" >&2; exit 255'
            return Guard(self.path, ["sh", "-c", GREET + answer], self.token, pings=False)

    for reason, words in (("", "no line"), ("lab blue is off", "lab blue is off")):
        machine = Gone("host")
        machine.guard  # noqa: B018 (it begins when it is first asked for)
        machine.why_gone = lambda reason=reason: reason  # as of a lab, after its guard was started
        with pytest.raises(MachineLost, match=f"^host: the connection is gone: {words}$"):
            machine.check_guard()
        machine.guard._close_pipes()
