"""The disks of a lab: new ones, or copies from a saved state. A start that is killed leaves no incomplete disks."""

from __future__ import annotations

from pathlib import Path, PurePosixPath

from vmtax.lab.home import Lab, LabError, Record, copy_disk, trouble, write
from vmtax.lab.names import RECORD, labs_directory
from vmtax.lab.spec import Size, disk_bytes, disk_files
from vmtax.machine.local import LocalMachine

MAKING = "making"  # in a lab that was never up: the token of the start that creates it
GOING_BACK = "going-back"  # in a lab whose disks are being replaced by its saved ones
# Removes neither a lab that a later start has created, nor one that was ever up. Constant text.
FORGET_NEW = ("sh", "-c", '! grep -qF "$1" "$2/making" 2> /dev/null || rm -rf "$2"', "sh")


def make_disks(local: LocalMachine, one: Lab, size: Size, saved: Path | None) -> None:
    """Make sparse files for a new lab; copy them if it begins from a saved state.

    A new lab has no record: it is removed, with everything that `local` set up, unless `keep` is called.
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
    """Call once it was up: it now is a lab with this record, which remains."""
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
    """Replace the disks one by one; a marker file exists meanwhile."""
    marker = one.directory / GOING_BACK
    marker.touch()
    for made in new.iterdir():
        made.replace(one.directory / made.name)
    marker.unlink()
