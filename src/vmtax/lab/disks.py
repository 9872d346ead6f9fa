"""The disks of a lab: new, copied from a saved state, or found whole. A start that is killed leaves none half made."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from vmtax.lab.home import Lab, LabError, Record, copy_disk, trouble, write
from vmtax.lab.names import RECORD, labs_directory
from vmtax.lab.spec import Size, disk_bytes, disk_files
from vmtax.machine.local import LocalMachine

MAKING = "making"  # in a lab that has not been up yet: the token of the start that makes it
GOING_BACK = "going-back"  # in a lab whose disks are being replaced by its saved ones
# Constant text. Not what a later start has made, nor what was up once.
FORGET_NEW = ("sh", "-c", '! grep -qF "$1" "$2/making" 2> /dev/null || rm -rf "$2"', "sh")


def make_disks(local: LocalMachine, one: Lab, size: Size, saved: Path | None) -> None:
    """Sparse files for a new lab; copies where it begins from a saved state.

    A new one has no record, and is removed with all that `local` set up, until `keep` is called.
    """
    if one.exists and saved is None:
        _check_whole(one)
        return
    if one.directory.exists() and not one.exists:
        raise LabError(f"{one.directory} is there, but is no lab: it has no {RECORD}; remove it, or take another name")
    new = labs_directory() / f".making-{local.token}"
    making = local.remove_later(PurePosixPath(new))
    try:
        new.mkdir(mode=0o700)
        for path, length in zip(disk_files(PurePosixPath(new), size), disk_bytes(size), strict=True):
            if saved is not None:
                copy_disk(local, saved / path.name, Path(path))
            else:
                with Path(path).open("wb") as file:
                    file.truncate(length)
        if one.exists:
            _replace(one, new)
        else:
            (new / MAKING).write_text(local.token)
            local.undo_later(*FORGET_NEW, local.token, str(one.directory), lasting=True)
            new.rename(one.directory)
        making.undo()
    except OSError as error:
        raise trouble(error, one.directory) from error


def keep(one: Lab, record: Record) -> None:
    """It was up: from now on it is a lab, with this record."""
    write(one.directory / RECORD, record)
    (one.directory / MAKING).unlink(missing_ok=True)


def _check_whole(one: Lab) -> None:
    if (one.directory / GOING_BACK).exists():
        again = f"vmtax lab start {one.name} --from {one.name}"
        raise LabError(f"{one.directory}: some disks are as saved, others not, for going back was interrupted: {again}")
    missing = [path.name for path in one.disks if not path.is_file()]
    if missing:
        raise LabError(f"{one.directory}: {', '.join(missing)} missing: vmtax lab remove {one.name}")


def _replace(one: Lab, new: Path) -> None:
    """Disk by disk, so it is marked as long as it lasts."""
    marker = one.directory / GOING_BACK
    marker.touch()
    for made in new.iterdir():
        made.replace(one.directory / made.name)
    marker.unlink()
