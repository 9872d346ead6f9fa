"""Mounts over mounts, and file systems on several disks, for real: the one that is in force is described."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.integration.conftest import HANGS
from vmtax.machine.local import LocalMachine
from vmtax.machine.reader import LocalReader
from vmtax.meter.disk import disk_facts
from vmtax.meter.mounts import READ, parse
from vmtax.storage.undo import UNMOUNT


def seen(script: str, path: str) -> tuple[str, str]:
    """Mount point and source that are found for a path, in a mount namespace of its own."""
    command = ("unshare", "--mount", "sh", "-ec", f'{script}; exec "$@"', "sh", *READ, path)
    done = subprocess.run(command, capture_output=True, text=True, timeout=HANGS, check=True)
    found = parse(done.stdout, path)
    assert found is not None
    return found.point, found.source


@pytest.mark.parametrize(
    ("script", "path", "wanted"),
    [
        ("mount -t tmpfs one /mnt", "/mnt", ("/mnt", "one")),
        ("mount -t tmpfs one /mnt; mount -t tmpfs two /mnt", "/mnt", ("/mnt", "two")),
        ("mount -t tmpfs one /mnt; mkdir /mnt/a; mount -t tmpfs two /mnt/a", "/mnt/a", ("/mnt/a", "two")),
        (
            "mount -t tmpfs one /mnt; mkdir /mnt/a; mount -t tmpfs two /mnt/a; mount -t tmpfs over /mnt; mkdir /mnt/a",
            "/mnt/a",
            ("/mnt", "over"),
        ),
        ("mount -t tmpfs one /mnt; mkdir '/mnt/a b'; mount -t tmpfs 'x y' '/mnt/a b'", "/mnt/a b", ("/mnt/a b", "x y")),
        (
            "mount -t tmpfs one /mnt; mkdir /mnt/a; ln -s a /mnt/b; mount -t tmpfs two /mnt/a",
            "/mnt/b",
            ("/mnt/a", "two"),
        ),
        ("mount -t tmpfs one /mnt; mkdir /mnt/a /mnt/b; mount --bind /mnt/a /mnt/b", "/mnt/b", ("/mnt/b", "one")),
        ("mount -t tmpfs one /mnt; mkdir -p /mnt/a/b/c", "/mnt/a/b/c", ("/mnt", "one")),
    ],
)
def test_of_several_mounts_the_one_that_a_path_leads_to(script: str, path: str, wanted: tuple[str, str]) -> None:
    assert seen(script, path) == wanted


@pytest.fixture
def loops(local: LocalMachine, tmp_path: Path) -> Iterator[list[str]]:
    with contextlib.ExitStack() as stack:
        found = []
        for name in ("one", "two"):
            (tmp_path / name).touch()
            local.run("truncate", "-s", "200M", str(tmp_path / name))
            found.append(local.run("losetup", "--find", "--show", str(tmp_path / name)).strip())
            stack.callback(local.try_run, "losetup", "--detach", found[-1])
        yield found


def test_a_btrfs_on_two_disks_names_both(local: LocalMachine, loops: list[str], tmp_path: Path) -> None:
    local.run("mkfs.btrfs", "-q", "-d", "raid1", *loops)
    (tmp_path / "on").mkdir()
    unmounting = local.undo_later(*UNMOUNT, str(tmp_path / "on"))
    local.run("mount", loops[0], str(tmp_path / "on"))
    facts = disk_facts(LocalReader(), tmp_path / "on")
    assert [f"/dev/{one['name']}" for one in facts["disks"]] == sorted(loops)
    unmounting.undo()
