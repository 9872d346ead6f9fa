"""What a lab is made of, what is refused, and what its records say."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path, PurePosixPath

import pytest

from vmtax import hosts
from vmtax.exits import BadInput
from vmtax.lab.home import Lab, LabError, NoSuchLab, Record, Software, Up, held, lab, labs, write
from vmtax.lab.spec import LabSpec, Size, command_line, device, disk_bytes, disk_files, kernel_arguments
from vmtax.lab.start import Wish, start

SOFTWARE = Software("10.0.2", "0123456789ab", "6.12.1", None, "tcg")
SPEC = LabSpec(
    name="blue",
    size=Size(),
    accelerator="tcg",
    qemu=("qemu",),
    kernel="/i/vmlinux",
    initrd="/r/initrd",
    root="/i/root.erofs",
    layers=(),
    disks=PurePosixPath("/labs/a,b"),
    runtime=PurePosixPath("/r"),
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for kind in ("DATA", "STATE"):
        monkeypatch.setenv(f"XDG_{kind}_HOME", str(tmp_path / kind.lower()))
    return tmp_path


def made(name: str = "blue", size: Size = SPEC.size) -> Lab:
    """A lab that is off."""
    one = lab(name)
    one.directory.mkdir(parents=True)
    for path in disk_files(PurePosixPath(one.directory), size):
        Path(path).touch()
    write(one.directory / "lab.json", Record(size, SOFTWARE))
    return one


def after(argv: tuple[str, ...], option: str) -> list[str]:
    return [argv[number + 1] for number, word in enumerate(argv) if word == option]


def test_disks_keep_their_names_whether_there_is_a_layer_or_not() -> None:
    argv = command_line(SPEC)
    drives = [entry.rpartition("file=")[2] for entry in after(argv, "-drive")]
    assert drives == [
        "/i/root.erofs",
        *(f"/labs/a,,b/{name}.raw" for name in ("work", *(f"spare{n}" for n in range(1, 5)))),
    ]
    assert "vmtax.layer" not in kernel_arguments(SPEC)
    more = replace(SPEC, layers=("/z/pack.erofs",), size=replace(SPEC.size, nvme=True))
    assert [entry.rpartition("file=")[2] for entry in after(command_line(more), "-drive")][:6] == drives
    assert kernel_arguments(more).endswith("vmtax.lab=blue vmtax.layer=/dev/vdg")
    files = more.disk_files
    assert [device(more.size, path) for path in files] == [*(f"/dev/vd{letter}" for letter in "bcdef"), "/dev/nvme0n1"]
    assert len(disk_bytes(more.size)) == len(files)


def test_a_lab_is_reached_from_the_launching_machine_only() -> None:
    for spec in (SPEC, replace(SPEC, taps=("one", "two"))):
        netdevs = after(command_line(spec), "-netdev")
        assert netdevs[0] == "user,id=management,restrict=on,hostfwd=tcp:127.0.0.1:0-:22"
        assert all("restrict=on" in entry or entry.startswith("tap,") for entry in netdevs)
    assert [entry.split(",")[2] for entry in netdevs[1:]] == ["ifname=one", "ifname=two"]


def test_a_power_cut_takes_the_page_cache() -> None:
    writable = [entry for entry in after(command_line(SPEC), "-drive") if "readonly" not in entry]
    assert writable and all("cache=none" in entry for entry in writable)


@pytest.mark.parametrize("name", ["Big", "a b", "-x", "a" * 21, "../x", "a/b"])
def test_names_that_no_lab_can_have(name: str) -> None:
    with pytest.raises(NoSuchLab, match="cannot be a lab's name"):
        lab(name)


def test_a_lab_that_is_not_there_or_off_says_how_to_have_it() -> None:
    with pytest.raises(BadInput, match="there is no lab lab; there are none yet; make it: vmtax lab start lab"):
        hosts.route("lab")
    made()
    with pytest.raises(BadInput, match="there is no lab red; there are: blue; make it: vmtax lab start red"):
        hosts.route("lab:red")
    with pytest.raises(LabError, match="lab blue is off: vmtax lab start blue"):
        hosts.route("lab:blue")


def up_record(one: Lab, pid: int, token: str) -> None:
    write(one.up_file, Up(token, pid, 2222, "/k/key", "/k/known", "/r/qmp", 0.0, 5.0, 7.0, "because", None))


def test_a_record_of_a_dead_lab_is_no_lab_that_is_up(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made()
    up_record(one, os.getpid(), "another's process")
    assert one.up() is None
    # A process's environment, as the kernel shows it, is that of its start.
    mark = Path("/proc/self/environ").read_bytes().split(b"\0")[0].decode()
    monkeypatch.setattr("vmtax.machine.guard.MARK", mark.partition("=")[0])
    up_record(one, os.getpid(), mark.partition("=")[2])
    assert one.up() is not None
    found = hosts.route("lab:blue")
    assert found.destination == "root@127.0.0.1" and found.options[-2:] == ("-p", "2222") and "/k/key" in found.options
    with pytest.raises(LabError, match="lab blue is up already: vmtax lab ssh blue"):
        start(one, Wish(), lambda event: None)


def test_one_command_at_a_time_handles_a_lab() -> None:
    one = made()
    with held(one), pytest.raises(LabError, match="is being started, ended or saved by another command"), held(one):
        pass


def test_what_a_start_refuses_before_it_sets_anything_up(monkeypatch: pytest.MonkeyPatch) -> None:
    one = made()
    quiet = lambda event: None  # noqa: E731
    with pytest.raises(LabError, match="lab blue keeps its disks"):
        start(one, Wish(spares=2), quiet)
    with pytest.raises(NoSuchLab, match="lab blue was never saved: vmtax lab save blue"):
        start(lab("red"), Wish(), quiet, source=one)
    with pytest.raises(NoSuchLab, match="there is no lab yellow"):
        start(lab("red"), Wish(), quiet, source=lab("yellow"))
    one.saved.mkdir()
    write(one.saved / "lab.json", Record(Size(), SOFTWARE))
    with pytest.raises(LabError, match="leave out --memory and --vcpus with --from blue"):
        start(lab("red"), Wish(vcpus=1), quiet, source=one)
    with pytest.raises(LabError, match="lab green has disks of its own: --from blue takes a name that is free"):
        start(made("green"), Wish(), quiet, source=one)
    monkeypatch.setattr("vmtax.lab.start.available_memory", lambda machine: 2**30)
    with pytest.raises(LabError, match=r"1\.0 GiB of memory are available, the lab takes 4\.4 GiB: end something, or"):
        start(lab("red"), Wish(), quiet)
    assert [found.name for found in labs()] == ["blue", "green"], "what could not be started is not there"


def test_a_damaged_record_is_told() -> None:
    one = made()
    (one.directory / "lab.json").write_text(json.dumps({"size": {}}))
    with pytest.raises(LabError, match=r"lab\.json: damaged .*; remove the lab: vmtax lab remove blue"):
        one.record()


def test_what_a_saved_state_misses_is_named() -> None:
    other = replace(SOFTWARE, qemu="10.1.0", zfs="2.3.2")
    assert other.differences(SOFTWARE) == ["QEMU 10.1.0, not 10.0.2", "ZFS 2.3.2, not None"]
    assert SOFTWARE.differences(SOFTWARE) == []
