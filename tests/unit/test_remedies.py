"""A remedy is the host's own: its package manager, its names of packages, its place for QEMU."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.fake_machine import FakeMachine, Reply
from tests.sources import modules
from vmtax.core import packages
from vmtax.core.packages import COMMANDS, PACKAGES, family, install
from vmtax.design.disk import DiskSettings, Volume
from vmtax.doctor.readings import TOOLS_HERE
from vmtax.hypervisor import Qemu, QemuError
from vmtax.hypervisor.confine import sandbox
from vmtax.hypervisor.qemu.detect import DEFAULT, ELSEWHERE, FIRST, RIGHTS
from vmtax.image import build, packs
from vmtax.machine.packages import READ
from vmtax.machine.tools import TOOLS
from vmtax.storage.backing import MKFS, programs
from vmtax.system.packages import install_here


@pytest.mark.parametrize(
    ("release", "program", "command"),
    [
        ("ID=debian\nVERSION_ID=12", "bwrap", "apt-get install bubblewrap"),
        ('ID=ubuntu\nID_LIKE="debian"', "qemu-system-x86_64", "apt-get install qemu-system-x86"),
        ('ID=neon\nID_LIKE="ubuntu debian"', "ssh", "apt-get install openssh-client"),
        ("ID=linuxmint\nID_LIKE=ubuntu", "ip", "apt-get install iproute2"),
        ('ID="kali"', "zpool", "apt-get install zfsutils-linux"),
        ("ID=fedora\nVERSION_ID=43", "ip", "dnf install iproute"),
        ("ID=fedora\nVARIANT_ID=silverblue", "bwrap", "rpm-ostree install bubblewrap"),
        ("ID=fedora\nVARIANT_ID=coreos", "bwrap", "rpm-ostree install bubblewrap"),
        ("ID=fedora\nVARIANT_ID=workstation", "bwrap", "dnf install bubblewrap"),
        ('ID="rhel"\nID_LIKE="fedora"\nVERSION_ID="9.4"', "qemu-system-x86_64", "dnf install qemu-kvm"),
        ('ID="rocky"\nID_LIKE="rhel centos fedora"', "ssh", "dnf install openssh-clients"),
        ('ID="almalinux"\nID_LIKE="rhel centos fedora"', "mkfs.erofs", "dnf install erofs-utils"),
        ('ID="centos"\nID_LIKE="rhel fedora"\nVERSION_ID="7"', "tar", "yum install tar"),
        ('ID="amzn"\nID_LIKE="fedora"\nVERSION_ID="2"', "zstd", "yum install zstd"),
        ('ID="amzn"\nID_LIKE="fedora"\nVERSION_ID="2023"', "zstd", "dnf install zstd"),
        ('ID="ol"\nID_LIKE="fedora"\nVERSION_ID="8.9"', "seccomp.json", "dnf install containers-common"),
        ('ID="opensuse-tumbleweed"\nID_LIKE="opensuse suse"', "qemu-system-x86_64", "zypper install qemu-x86"),
        ('ID="opensuse-leap"\nID_LIKE="suse opensuse"', "mkfs.btrfs", "zypper install btrfsprogs"),
        ('ID="sles"\nID_LIKE="suse"', "GenuineIntel", "zypper install ucode-intel"),
        ('ID="opensuse-microos"\nID_LIKE="suse"', "bwrap", "transactional-update pkg install bubblewrap"),
        ("ID=arch", "python3", "pacman -S python"),
        ("ID=cachyos\nID_LIKE=arch", "ssh-keygen", "pacman -S openssh"),
        ("ID=alpine", "qemu-system-x86_64", "apk add qemu-system-x86_64"),
        ("ID=nixos", "tar", "nix-shell -p gnutar"),
        ("ID=gentoo", "bwrap", "emerge sys-apps/bubblewrap"),
        ("ID=void", "bwrap", "install bwrap (bubblewrap) with your packager"),
        ("", "mkfs.xfs", "install mkfs.xfs (xfsprogs) with your packager"),
        ("ID=alpine", "mmdebstrap", "install mmdebstrap (mmdebstrap) with your packager"),
        ("ID=fedora\nID=debian", "bwrap", "apt-get install bubblewrap"),
        ("ID=debian", "no such program", "install no such program with your packager"),
    ],
)
def test_the_command_is_that_of_the_system(release: str, program: str, command: str) -> None:
    assert install(release, program) == command


def test_several_programs_take_one_command_that_names_each_package_once() -> None:
    assert install("ID=debian", "taskset", "unshare", "zstd") == "apt-get install util-linux zstd"
    assert install("ID=gentoo", "ssh", "ssh-keygen") == "emerge net-misc/openssh"


@given(st.text())
def test_no_os_release_makes_it_fail(release: str) -> None:
    assert family(release) in ("", *COMMANDS) and install(release, "bwrap")


def test_every_program_that_may_be_missing_has_its_row() -> None:
    volumes = [DiskSettings(volume=volume) for volume in Volume]
    systems = [DiskSettings.of({"disk.filesystem": system}) for system in MKFS]
    made = {tool.name for tool in programs([*volumes, *systems], cuts=True)}
    needed = {*(tool.name for tool in TOOLS), *TOOLS_HERE, *build.TOOLS, *packs.TOOLS, *made, DEFAULT}
    assert needed <= PACKAGES.keys() and {"zpool", "lvcreate", "sfdisk", "mkfs.xfs"} <= needed
    assert {"apt-get install", "dnf install", "zypper install"} <= {*COMMANDS.values()}


def test_no_other_file_names_a_packager() -> None:
    """Nor calls a package "Debian's": a literal somewhere else would be right on one system only."""
    told = (*COMMANDS.values(), "apt install", "(Debian:")
    found = {
        file
        for file, module in modules(*(words.split()[0] for words in told))
        for node in ast.walk(module)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if any(words in node.value for words in told)
    }
    assert found == {"core/packages.py"}


def probed(first: str = "", missing: bool = True, release: str = "ID=rocky\nID_LIKE=rhel") -> Qemu:
    version = "QEMU emulator version 9.0.0 (qemu-kvm-9.0.0-10.el9)\n"
    answers: dict[tuple[str, ...], str | Reply] = {
        RIGHTS: "Seccomp:\t0\n",
        READ: release,
        (DEFAULT, "--version"): Reply(code=127, stderr="not found") if missing else version,
        (*FIRST, *ELSEWHERE): Reply(first, code=0 if first else 1),
    }
    for program in (DEFAULT, *ELSEWHERE):
        answers.setdefault((program, "--version"), version)
        answers[(program, *sandbox(), "--version")] = version
    return Qemu.probe(FakeMachine(answers=answers))


@pytest.mark.parametrize("place", ELSEWHERE)
def test_qemu_is_found_where_other_systems_keep_it(place: str) -> None:
    found = probed(f"{place}\n")
    assert found.command == (place,) and found.is_default


def test_a_qemu_in_the_search_path_comes_first_and_a_missing_one_is_installed_as_there() -> None:
    assert probed(ELSEWHERE[0], missing=False).command == (DEFAULT,)
    with pytest.raises(QemuError, match="dnf install qemu-kvm, or name another with --qemu"):
        probed()


def test_here_it_is_by_the_file_of_this_host(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "os-release").write_text("ID=arch\n")
    monkeypatch.setattr(packages, "RELEASE", str(tmp_path / "os-release"))
    assert install_here("ssh") == "pacman -S openssh"
    monkeypatch.setattr(packages, "RELEASE", str(tmp_path / "missing"))
    assert install_here("ssh") == "install ssh (openssh) with your packager"
