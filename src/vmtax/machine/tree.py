"""Remove files and directories safely as root: level by level, through descriptors.

There is no limit on the depth of a tree or the length of a path, no link is followed, and no other file system is
entered. It is a part of the guard, which runs by itself on a machine: only the standard library, and no name that
guard.py has too.
"""

from __future__ import annotations

import errno
import os
import signal
import stat

FOR_EVER = float("inf")
DIRECTORY = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


def mount_of(descriptor: int) -> object:
    """Distinguishes the mount of an open file from every other, even from a second mount of the same file system."""
    try:
        with open(f"/proc/self/fdinfo/{descriptor}", encoding="ascii") as file:
            return next(line for line in file if line.startswith("mnt_id"))
    except (OSError, StopIteration):
        return os.fstat(descriptor).st_dev


def same(descriptor: int) -> tuple[int, int]:
    status = os.fstat(descriptor)
    return status.st_dev, status.st_ino


def open_below(name: str, directory: int) -> int:
    """Open a directory in that directory, made readable if it is ours; never a link."""
    try:
        descriptor = os.open(name, DIRECTORY, dir_fd=directory)
    except PermissionError:
        handle = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=directory)
        try:
            os.chmod(f"/proc/self/fd/{handle}", 0o700)
        finally:
            os.close(handle)
        descriptor = os.open(name, DIRECTORY, dir_fd=directory)
    status = os.fstat(descriptor)
    if status.st_mode & 0o700 != 0o700 and status.st_uid == os.geteuid():
        os.fchmod(descriptor, 0o700)
    return descriptor


def clear(directory: int, errors: list[str]) -> list[str]:
    """Remove everything but the directories in it, whose names it returns."""
    while True:  # until nothing more is removed: removing entries while listing may hide others
        below, failed, gone = [], [], False
        with os.scandir(directory) as entries:
            for entry in entries:
                try:
                    if entry.is_dir(follow_symlinks=False):
                        below.append(entry.name)
                    else:
                        os.unlink(entry.name, dir_fd=directory)
                        gone = True
                except FileNotFoundError:
                    pass
                except OSError as error:
                    failed.append(f"{entry.name}: {error.strerror}")
        if not gone:
            errors += failed
            return below


def remove_tree(name: str, directory: int) -> None:
    """Remove a directory in that directory with everything in it, except other file systems."""
    errors: list[str] = []
    walk = Walk(directory)
    todo = [[name]]
    try:
        while todo:
            if not todo[-1]:
                todo.pop()
                if todo:
                    walk.leave(errors)
            elif walk.enter(todo[-1].pop(), errors):
                todo.append(clear(walk.here, errors))
    finally:
        os.close(walk.here)
    if errors:
        raise OSError(errno.ENOTEMPTY, errors[0])  # the first is the cause, the others may be consequences


class Walk:
    """Walks down and up a tree, with one directory open."""

    def __init__(self, directory: int) -> None:
        self.here = os.dup(directory)
        self.mount = mount_of(directory)
        # The directories that we are in, each with the identity of its parent
        self.above: list[tuple[str, tuple[int, int]]] = []

    def enter(self, name: str, errors: list[str]) -> bool:
        """Go down; False if the directory must not be entered."""
        try:
            inner = open_below(name, self.here)
        except FileNotFoundError:
            return False
        except OSError as error:
            errors.append(f"{name}: {error.strerror}")
            return False
        if mount_of(inner) != self.mount:
            os.close(inner)
            errors.append(f"{name}: a file system is mounted there")
            return False
        self.above.append((name, same(self.here)))
        os.close(self.here)
        self.here = inner
        return True

    def leave(self, errors: list[str]) -> None:
        """Go up, and remove the directory that was left. Raises OSError if that leads elsewhere than we came from."""
        name, outside = self.above.pop()
        outer = os.open("..", DIRECTORY, dir_fd=self.here)
        os.close(self.here)
        self.here = outer
        if same(outer) != outside:
            raise OSError(errno.ESTALE, f"{name} was moved while it was removed")
        try:
            os.rmdir(name, dir_fd=outer)
        except FileNotFoundError:
            pass
        except OSError as error:
            errors.append(f"{name}: {error.strerror}")


def shorten(path: str, most: int) -> None:
    """Empty a file of ours that uses more than that many bytes of its disk. A program that continues to write leaves a
    hole.
    """
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError:
        return
    try:
        status = os.fstat(descriptor)
        is_ours = stat.S_ISREG(status.st_mode) and status.st_nlink == 1 and status.st_uid == os.geteuid()
        if is_ours and status.st_blocks * 512 > most:
            os.ftruncate(descriptor, 0)
    except OSError:
        pass
    finally:
        os.close(descriptor)


def remove(path: str) -> None:
    """Remove a file, a link or a directory; it is no error if it does not exist."""
    parent, name = os.path.split(path.rstrip("/"))
    if not parent.startswith("/") or name in ("", ".", ".."):
        raise ValueError("no absolute path of a file")
    try:
        directory = os.open(parent, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except (FileNotFoundError, NotADirectoryError):
        return
    try:
        if stat.S_ISDIR(os.lstat(name, dir_fd=directory).st_mode):
            remove_tree(name, directory)
        else:
            os.unlink(name, dir_fd=directory)
    except FileNotFoundError:
        pass
    finally:
        os.close(directory)


class UndoingTooLate(Exception):
    """Undoing takes too long; not an OSError, because removals collect these."""


def late(*_: object) -> None:
    raise UndoingTooLate


def remove_within(path: str, seconds: float) -> str:
    """Remove a file or directory; returns the reason if it takes too long, else an empty string. Main thread only."""
    before = signal.signal(signal.SIGALRM, late)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0 if seconds == FOR_EVER else seconds)
        remove(path)
    except UndoingTooLate:
        return f"not all removed within {seconds:.0f} s"
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
    return ""
