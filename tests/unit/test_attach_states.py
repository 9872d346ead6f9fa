"""States of a VM, its guest and its host in which nothing can be measured, or what must be said beside the result."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path, PurePosixPath

import pytest

from tests.fake_machine import FakeMachine, Reply
from vmtax.attach.domain import FIND_QEMU, script
from vmtax.attach.entry import SELINUX, put_image
from vmtax.image.place import Placed
from vmtax.testbed.session.session import CannotMeasure
from vmtax.testbed.session.ways import Inside
from vmtax.testbed.subjects.existing import refuse_unentered

PLACED = Placed("/root.erofs", "/boot/vmlinux", "/boot/initrd", "/tree")
UUID = "8662b4e3-a27d-41ac-868a-c680d4d26354"


def with_programs(directory: Path, programs: dict[str, str]) -> dict[str, str]:
    """An environment with these shell scripts in place of programs."""
    for name, text in programs.items():
        file = directory / name
        file.write_text(f"#!/bin/sh\n{text}\n")
        file.chmod(0o755)
    return {"PATH": f"{directory}:{os.environ['PATH']}"}


@pytest.mark.parametrize(
    ("uuid", "seen", "note"),
    [
        (UUID, "77\n", ""),
        (UUID, "", "no QEMU there has its UUID"),
        (UUID, "77\n78\n", "several QEMUs there have its UUID"),
        ("", "77\n", "it does not say its UUID"),
        ("00000000-0000-0000-0000-000000000000", "77\n", "it does not say its UUID"),
    ],
)
def test_a_vm_whose_qemu_is_not_known_says_why(uuid: str, seen: str, note: str) -> None:
    """Copies of a VM have its UUID if nobody changed it, and two hosts may have VMs of one name."""
    machine = FakeMachine("host", {(*FIND_QEMU, UUID): seen})
    inside = Inside(machine, PLACED, uuid=uuid).on(machine)
    assert inside.qemu == (None if note else 77)
    assert note in " ".join(inside.notes) and bool(note) == bool(inside.notes)


def test_the_process_that_the_hypervisor_names_is_not_searched_for() -> None:
    machine = FakeMachine("host")
    assert Inside(machine, PLACED, uuid=UUID, qemu=12).on(machine).qemu == 12
    assert machine.calls == []


@pytest.mark.parametrize(
    ("programs", "code"),
    [
        ({"uname": "echo i686"}, 76),
        ({"uname": "echo aarch64"}, 76),
        ({"uname": "echo x86_64", "modprobe": "exit 1", "sleep": ""}, 71),
    ],
)
@pytest.mark.varied(1)
def test_a_guest_that_cannot_be_entered_ends_with_its_own_code(
    programs: dict[str, str], code: int, tmp_path: Path
) -> None:
    """32-bit, another processor, and a guest that never sees the disk and the port."""
    argv = [*script("inside"), "vmtax-none-image", "vmtax-none-port"]
    done = subprocess.run(argv, env=with_programs(tmp_path, programs), input="a key\n", capture_output=True, text=True)
    assert done.returncode == code, done.stderr


@pytest.mark.parametrize("is_confined", [True, False])
def test_where_selinux_is_the_image_is_copied_whose_label_libvirt_changes(is_confined: bool) -> None:
    found = Reply() if is_confined else Reply(code=1)
    quiet = {(lambda argv: argv[0] in ("ln", "cp", "chmod")): ""}
    machine = FakeMachine("host", {("test", "-e", SELINUX): found, **quiet})
    put_image(machine, PLACED, PurePosixPath("/var/tmp/image"))
    assert [argv[0] for argv in machine.calls if argv[0] != "test"] == (["cp", "chmod"] if is_confined else ["ln"])


def test_a_guest_without_namespaces_is_refused_in_one_line() -> None:
    said = Reply(stderr="bwrap: No permissions to create new namespace\n", code=1)
    machine = FakeMachine("host/existing", {("id", "-u"): "0\n", (lambda argv: argv[-1] == "true"): said})
    with pytest.raises(CannotMeasure, match="libvirt:web1: the image's programs cannot be started there") as refused:
        refuse_unentered("libvirt:web1", machine, PLACED)
    assert "\n" not in str(refused.value)


PVESH = """\
echo "$*" >> "$0.log"
case "$*" in *device_del*) touch "$0.asked"; echo '""'; exit 0 ;; esac
case "$(cat "$0.says")" in
    has) echo '"  dev: virtio-blk-pci, id \\\\"vmtax-1-data\\\\"\\\\r\\\\n"' ;;
    released) if [ -e "$0.asked" ]; then echo '""'; else echo '"dev: x, id \\\\"vmtax-1-data\\\\""'; fi ;;
    off) echo 'VM 101 not running' >&2; exit 255 ;;
    gone) echo "Configuration file 'nodes/pve1/qemu-server/101.conf' does not exist" >&2; exit 2 ;;
    down) echo 'ipcc_send_rec[1] failed: Connection refused' >&2; exit 255 ;;
esac
"""


@pytest.mark.parametrize(
    ("says", "code", "words", "then"),
    [
        ("released", 0, "", True),
        ("off", 0, "", False),
        ("gone", 0, "", False),
        ("down", 1, "whether VM 101 still has vmtax-1-data is not known: ipcc_send_rec", False),
        ("has", 1, "VM 101 does not let go of vmtax-1-data: qm monitor 101, device_del vmtax-1-data", False),
    ],
)
@pytest.mark.varied(2)
def test_a_device_of_proxmox_counts_as_gone_only_if_qemu_says_so(
    says: str, code: int, words: str, then: bool, tmp_path: Path
) -> None:
    environment = with_programs(tmp_path, {"pvesh": PVESH, "sleep": ""})
    (tmp_path / "pvesh.says").write_text(says)
    argv = [*script("proxmox/detach"), "101", "vmtax-1-data", "drive_del vmtax-1-data-drive"]
    done = subprocess.run(argv, env=environment, capture_output=True, text=True)
    assert (done.returncode, words in done.stderr) == (code, True), done.stderr
    asked = (tmp_path / "pvesh.log").read_text()
    assert ("drive_del" in asked) is then, "the file is given back only when the guest has let go of the disk"
    assert ("device_del" in asked) is (says in ("released", "has"))


def test_what_has_no_device_is_taken_out_without_waiting(tmp_path: Path) -> None:
    environment = with_programs(tmp_path, {"pvesh": 'echo "$*" >> "$0.log"; echo \'""\''})
    subprocess.run([*script("proxmox/detach"), "101", "", "object_del vmtax-1-iothread"], env=environment, check=True)
    assert (tmp_path / "pvesh.log").read_text().split("--command")[1].startswith(" object_del")
