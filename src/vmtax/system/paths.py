"""The directories of vmtax on this host, according to the XDG Base Directory Specification."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path

from vmtax.core.errors import CannotDo
from vmtax.system.ownership import why_unsafe


class NoPlace(CannotDo):
    """There is no directory that belongs only to this user; the text says which variable can name another one."""


def data_home() -> Path:
    """For results. This and the others raise NoPlace."""
    return _home("XDG_DATA_HOME", ".local/share")


def cache_home() -> Path:
    """For data that can be recreated."""
    return _home("XDG_CACHE_HOME", ".cache")


def state_home() -> Path:
    """For undo lists and the progress of runs."""
    return _home("XDG_STATE_HOME", ".local/state")


def private(path: str, flags: int) -> int:
    """For `open(..., opener=private)`: created files are for this user only."""
    return os.open(path, flags, 0o600)


def make_private(directory: Path) -> None:
    """Create missing parts of the path, for this user only, whatever the umask, and so that they survive a power cut.

    Existing directories keep their mode.
    """
    if directory.is_dir():
        return
    make_private(directory.parent)
    try:
        directory.mkdir(mode=0o700)
    except FileExistsError:
        if not directory.is_dir():
            raise
    else:
        directory.chmod(0o700)
    sync_directory(directory.parent)


def sync_directory(directory: Path) -> None:
    """Flush a directory: a new file survives a power cut only if its directory entry does."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _home(variable: str, default: str) -> Path:
    """The directory vmtax in it: owned by this user, and not writable by others."""
    cure = f"set HOME or {variable} to a directory of your own"
    given = Path(os.environ.get(variable, ""))
    # The specification requires that relative paths are ignored.
    base = given if given.is_absolute() else _user_home(cure) / default
    directory = base / "vmtax"
    try:
        # If others may rename what we made, vmtax/ could be anybody's.
        if why := why_unsafe(str(base)):
            raise NoPlace(f"{base}: what is kept there is not safe: {why}; {cure}")
        _keep_own(directory, cure)
    except (FileNotFoundError, NotADirectoryError):
        pass  # the caller creates it, or reports that it is missing
    except OSError as error:
        raise NoPlace(f"{directory}: {error.strerror}; {cure}") from error
    return directory


def _user_home(cure: str) -> Path:
    given = os.environ.get("HOME")
    if given is None:
        try:
            given = pwd.getpwuid(os.getuid()).pw_dir
        except KeyError:
            raise NoPlace(f"HOME is not set, and user {os.getuid()} has no entry in /etc/passwd; {cure}") from None
    if not given.startswith("/"):
        raise NoPlace(f"HOME is {given!r}, not an absolute path; {cure}")
    return Path(given)


def _keep_own(directory: Path, cure: str) -> None:
    """Raises NoPlace if it belongs to somebody else. A link, and its target, are not changed: the target may belong to
    others.
    """
    if why := why_unsafe(str(directory), sticky=False) if directory.is_symlink() else "":
        raise NoPlace(f"{directory} is a link, and {why}; {cure}")
    status = directory.stat()
    if status.st_uid != os.geteuid():
        raise NoPlace(f"{directory} belongs to user {status.st_uid}, and you are user {os.geteuid()}; {cure}")
    if status.st_mode & 0o022 and not directory.is_symlink():
        descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            os.fchmod(descriptor, stat.S_IMODE(status.st_mode) & ~0o022)  # created under another umask
        finally:
            os.close(descriptor)
