"""The guard: undoes what was set up on a machine, whatever becomes of vmtax.

This file runs by itself on the machine (`python3 -c SOURCE DIRECTORY TOKEN SILENCE`), so it imports the standard
library only. It reads one JSON object a line and answers each with one:

    {"add": ID, "argv": [...]}    remember how to undo ID: run argv; "lasting": true where a reboot does not
    {"add": ID, "remove": PATH}   remember how to undo ID: remove that file or directory
    {"undo": ID}                  undo ID now and forget it
    {"ping": true}                we are still there
    {"outlive": PID}              from now on it is the end of that process, not of the input, that ends it all

Every line is in DIRECTORY/TOKEN.undo, synced, before it is answered. At the end of its input, on SIGTERM or SIGHUP, or
after SILENCE seconds without a line (0: for ever), it ends every process that carries VMTAX_RUN=TOKEN in its
environment, undoes the list in reverse, and removes the file. At its start it does the same for every list whose guard
is dead (the file is locked as long as its guard lives), but where that was to outlive a process that is still there.
After a reboot it removes files and what was said to be lasting (a volume, a partition): what other commands undo ended
with the kernel that knew it, and a setting that we would put back, or a network card that we would take down, may be
somebody's by now.
What cannot be undone stays in the file, is tried again at the next start, and is told: in the answer at the start,
{"recovered": COUNT, "left": [TEXT, ...]}, and in the last line, {"left": [TEXT, ...]}. An undo of something that was
never made must succeed: it is listed before it is made.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import shutil
import signal
import subprocess
import sys
import time

MARK = "VMTAX_RUN"
TERM_SECONDS = 2.0  # between SIGTERM and SIGKILL


def is_marked(pid: int, token: str) -> bool:
    """Whether that process is there and carries the token."""
    try:
        with open(f"/proc/{pid}/environ", "rb") as file:
            return f"{MARK}={token}".encode() in file.read().split(b"\0")
    except OSError:
        return False  # ended meanwhile, or not ours to read


def marked(token: str) -> list[int]:
    """Every process that carries the token, but ourselves."""
    pids = [int(name) for name in os.listdir("/proc") if name.isdigit()]
    return [pid for pid in pids if pid != os.getpid() and is_marked(pid, token)]


def end_processes(token: str) -> None:
    """SIGTERM, two seconds, SIGKILL until none is left."""
    started = time.monotonic()
    while pids := marked(token):
        force = time.monotonic() - started > TERM_SECONDS
        for pid in pids:
            try:
                os.kill(pid, signal.SIGKILL if force else signal.SIGTERM)
            except ProcessLookupError:
                pass
        if time.monotonic() - started > 10 * TERM_SECONDS:
            return  # in uninterruptible sleep; the rest is still worth undoing
        time.sleep(0.05)


def undo(entry: dict[str, object]) -> str:
    """Undo one entry; the reason where that failed, else an empty string."""
    try:
        if "remove" in entry:
            path = str(entry["remove"])
            if os.path.isdir(path) and not os.path.islink(path):
                shutil.rmtree(path)
            elif os.path.lexists(path):
                os.unlink(path)
            return ""
        argv = [str(word) for word in entry["argv"]]  # type: ignore[attr-defined]
        done = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=60, text=True)
        return "" if done.returncode == 0 else (done.stderr.strip() or f"exit code {done.returncode}")
    except (OSError, LookupError, TypeError, ValueError, subprocess.SubprocessError) as error:
        return str(error)  # also an entry of a damaged list: the others are still worth undoing


def undo_all(token: str, entries: dict[int, dict[str, object]], descriptor: int) -> list[str]:
    """Undo every entry, striking off each that worked; one line for each that did not."""
    end_processes(token)
    left = []
    for number in sorted(entries, reverse=True):
        error = undo(entries[number])
        if error:
            what = entries[number].get("remove") or entries[number].get("argv")
            left.append(f"{what if isinstance(what, str) else json.dumps(what)}: {error}")
        else:
            strike_off(descriptor, number)
    end_processes(token)
    return left


def read_list(text: str) -> dict[int, dict[str, object]]:
    """The entries of a list that were not undone. A half-written last line counts for nothing: it was not answered."""
    entries: dict[int, dict[str, object]] = {}
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if not isinstance(record, dict):
            continue
        if isinstance(record.get("add"), int):
            entries[record["add"]] = record
        elif isinstance(record.get("undo"), int):
            entries.pop(record["undo"], None)
    return entries


def boot_id() -> str:
    """Of this boot of the machine; empty where the kernel does not tell."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def due(text: str) -> dict[int, dict[str, object]]:
    """What is to be undone of a dead guard's list."""
    entries = read_list(text)
    try:
        record = json.loads(text.partition("\n")[0])
    except ValueError:
        return entries
    boot = record.get("boot") if isinstance(record, dict) else None
    if not boot or boot == boot_id():
        return entries
    return {number: entry for number, entry in entries.items() if "remove" in entry or entry.get("lasting") is True}


def is_outlived(text: str, token: str) -> bool:
    """Whether the list of a guard belongs to a process that was to outlive us, and still runs."""
    pid = None
    for line in text.splitlines():
        try:
            record = json.loads(line)
        except ValueError:
            continue
        if isinstance(record, dict) and isinstance(record.get("outlive"), int):
            pid = record["outlive"]
    return pid is not None and is_marked(pid, token)


def lock(path: str, flags: int = 0) -> int | None:
    """An open, locked descriptor; None where another guard holds the lock, or where the list is not ours to open."""
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | flags, 0o600)
    except (FileNotFoundError, PermissionError):
        return None
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        os.close(descriptor)
        return None
    return descriptor


def own_list(path: str) -> int | None:
    """Our own list, locked. A starting guard that takes it for a dead one's may remove it: then make it anew."""
    for _ in range(100):
        descriptor = lock(path, os.O_CREAT)
        if descriptor is not None:
            try:
                if os.stat(path).st_ino == os.fstat(descriptor).st_ino:
                    return descriptor
            except FileNotFoundError:
                pass
            os.close(descriptor)
        time.sleep(0.02)
    return None


def recover(directory: str) -> tuple[int, list[str]]:
    """Undo the lists of dead guards; how many there were, and what could not be undone."""
    count = 0
    left: list[str] = []
    for name in sorted(os.listdir(directory)):
        path = os.path.join(directory, name)
        if not name.endswith(".undo"):
            continue
        descriptor = lock(path)
        if descriptor is None:
            continue
        status = os.fstat(descriptor)
        # Unlinked: its owner ended just now and has undone it. Somebody else's: never run what others may have written.
        if status.st_nlink == 0 or status.st_uid != os.geteuid():
            os.close(descriptor)
            continue
        with open(descriptor, encoding="utf-8", errors="replace", closefd=False) as file:
            text = file.read()
        token = name.removesuffix(".undo")
        if is_outlived(text, token):
            os.close(descriptor)  # a lab whose guard was killed: undone when it has ended
            continue
        if text and not text.endswith("\n"):
            keep(descriptor, "\n")  # what follows a half-written line must be a line of its own
        failures = undo_all(token, due(text), descriptor)
        if not failures:
            os.unlink(path)
        os.close(descriptor)
        count += 1
        left += failures
    return count, left


def keep(descriptor: int, line: str) -> None:
    data = line.encode()
    if os.write(descriptor, data) != len(data):
        os.write(descriptor, b"\n")  # what follows must be a line of its own
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    os.fsync(descriptor)


def strike_off(descriptor: int, number: int) -> None:
    """Best effort: on a full disk what was undone stays listed, and undoing it again does no harm."""
    try_to_keep(descriptor, json.dumps({"undo": number}) + "\n")


def try_to_keep(descriptor: int, line: str) -> None:
    try:
        keep(descriptor, line)
    except OSError:
        pass


def lines(silence: float) -> object:
    """Lines of standard input until its end, or until nothing came for `silence` seconds."""
    rest = b""
    while select.select([0], [], [], silence or None)[0]:
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *whole, rest = (rest + chunk).split(b"\n")
        yield from whole


def serve(descriptor: int, silence: float, entries: dict[int, dict[str, object]]) -> int | None:
    """Answer every line; the pidfd of the process to be outlived, None where there is none."""
    outlived = None
    for line in lines(silence):  # type: ignore[attr-defined]
        record = json.loads(line)
        error = ""
        if "add" in record:
            try:
                keep(descriptor, line.decode() + "\n")
                entries[record["add"]] = record
            except OSError as failure:
                error = f"the undo list cannot be written: {failure.strerror}"
        elif "undo" in record:
            entry = entries.get(record["undo"])
            error = undo(entry) if entry else ""
            if not error:
                strike_off(descriptor, record["undo"])
                entries.pop(record["undo"], None)  # last: if we are ended on the way, it is undone with the rest
        elif "outlive" in record:
            try:
                outlived = os.pidfd_open(record["outlive"])
                keep(descriptor, line.decode() + "\n")
            except (AttributeError, OSError) as failure:
                error = str(failure)
        print(json.dumps({"error": error}), flush=True)
    return outlived


def main() -> None:
    directory, token, silence = sys.argv[1], sys.argv[2], float(sys.argv[3])
    os.umask(0o077)
    path = os.path.join(directory, f"{token}.undo")
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        recovered, left = recover(directory)
        descriptor = own_list(path)
    except OSError as error:
        where = error.filename or directory
        sys.exit(f"{where}: {error.strerror}; set XDG_STATE_HOME to a directory that you can write")
    if descriptor is None:
        sys.exit(f"{path} is in use by another guard")
    if os.fstat(descriptor).st_size == 0:
        try_to_keep(descriptor, json.dumps({"boot": boot_id()}) + "\n")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for vmtax, which then closes our input

    def leave(*_: object) -> None:
        raise SystemExit

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    # Not empty where a guard of the same run was killed and left something that could not be undone just now.
    with open(path, encoding="utf-8", errors="replace") as file:
        entries = read_list(file.read())
    try:
        print(json.dumps({"recovered": recovered, "left": left, "last": max(entries, default=0)}), flush=True)
        outlived = serve(descriptor, silence, entries)
        if outlived is not None:
            select.select([outlived], [], [])
    except (BrokenPipeError, SystemExit):
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        left = undo_all(token, entries, descriptor)
        if not left:
            os.unlink(path)
        try:
            print(json.dumps({"left": left}), flush=True)
        except OSError:
            pass  # nobody is there to read it; the list tells the next guard


if __name__ == "__main__":
    main()
