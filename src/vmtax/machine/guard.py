"""The guard: undoes what was set up on a machine, whatever happens to vmtax.

This file, with hold.py, processes.py and tree.py put into it, runs by itself on the machine (`python3 -I -S -c LOADER
DIRECTORY SILENCE`: isolated from the directory and the environment that it is started in), so it imports the standard
library only. It reads one JSON object per line, the first of which identifies the run, and answers each with one, or an
error:

    {"token": TOKEN, "nonce": WORD}   the run; {"hello": WORD} distinguishes the answer from a login's banner
    {"add": ID, "argv": [...]}    remember how to undo ID: run argv; "lasting": true if ID survives a reboot
    {"add": ID, "remove": PATH}   remember how to undo ID: remove that file or directory
    {"undo": ID}                  undo ID now and forget it
    {"ping": true}                vmtax is still there
    {"hold": NAME, "words": TEXT} nobody else may hold NAME on this machine from now on; the answer has "holder": the
                                  words of the one who does, or "" if that is us
    {"let_go": true}              that is over
    {"outlive": PID}              from now on the end of that process, not of the input, ends everything;
                                  "logs": [PATH, ...] are emptied when they take more than 64 MiB

While something takes long, it prints a line {"busy": true} every five seconds: while it undoes, or while it waits for
a disk, with "waits": TEXT, "seconds": NUMBER then.
Every line is in DIRECTORY/TOKEN.undo, synced, before it is answered. At the end of its input, on SIGTERM or SIGHUP, or
after SILENCE seconds without a line (0: never), it ends every process that has VMTAX_RUN=TOKEN in its environment,
undoes the list in reverse, and removes the file. When it starts, it does the same for every list whose guard is dead (a
guard keeps its list locked), unless that guard was to outlive a process that still runs. After a reboot, it removes
files and undoes what is marked as lasting (a volume, a partition): the effects of other entries ended with the kernel,
and a setting that we would restore, or a network card that we would take down, may by now be somebody else's.
What cannot be undone, or is not reached in the two minutes that a start allows for others' lists, stays in the file,
does not prevent other entries from being undone, is tried again at the next start, and is reported: in the second line
of the first answer, {"recovered": COUNT, "left": [TEXT, ...], "last": ID}, and in the last line, {"left": [TEXT, ...]}.
Undoing something that was never made must succeed, because it is listed before it is made.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import select
import signal
import stat
import sys
import threading
import time
from collections.abc import Iterator

from vmtax.machine.hold import Hold
from vmtax.machine.processes import command, end_processes, is_marked, start_of, wait_for
from vmtax.machine.tree import DIRECTORY, FOR_EVER, remove_within

BUSY_SECONDS = 5.0  # between two lines that say that we are still undoing
UNDO_SECONDS = 60.0  # for one command that undoes something
RECOVERY_SECONDS = 120.0  # for all lists of dead guards together, because vmtax waits for us meanwhile
LEAST_SECONDS = 1.0  # with less time left, no further undo is begun
NOT_REACHED = f"not reached in {RECOVERY_SECONDS:.0f} s, tried again at the next start"
MOST_LINE = 2**20  # bytes of one input line
MOST_LIST = 2**26  # bytes of a list that are read
MOST_TOLD = 200  # lines that report what could not be undone; the list keeps everything


def undo(entry: dict[str, object], seconds: float = FOR_EVER) -> str:
    """Undo one entry; returns the reason if that failed, else an empty string."""
    try:
        if "remove" in entry:
            return remove_within(str(entry["remove"]), seconds)
        argv = entry["argv"]
        if not isinstance(argv, list) or not argv:
            return "no command"
        return command([str(word) for word in argv], min(UNDO_SECONDS, seconds))
    except Exception as error:  # of any kind: the other entries are still worth undoing
        return str(error) or type(error).__name__


def undo_all(
    token: str, entries: dict[int, dict[str, object]], descriptor: int, deadline: float = FOR_EVER
) -> list[str]:
    """Undo every entry, removing those that succeed from the list; returns one line for each that failed.

    An entry may take half of the time until the deadline, so that one that hangs does not block the others.
    """
    end_processes(token, deadline)
    left = []
    for number in sorted(entries, reverse=True):
        seconds = deadline - time.monotonic()
        error = NOT_REACHED if seconds < LEAST_SECONDS else undo(entries[number], seconds / 2)
        if error:
            left.append(f"{_named(entries[number])}: {error}"[:1000])
        else:
            strike_off(descriptor, number)
    end_processes(token, deadline)
    return left


def _named(entry: dict[str, object]) -> str:
    """What an entry undoes, for people: of a script of ours its name and arguments."""
    what = entry.get("remove") or entry.get("argv")
    if isinstance(what, list) and what[:2] == ["sh", "-c"] and len(what) > 3:
        what = what[3:]
    return what if isinstance(what, str) else json.dumps(what)


class Busy:
    """A thread that prints every few seconds that we are alive while something takes long.

    waits: what we wait for, if it is a disk
    """

    def __init__(self, seconds: float = BUSY_SECONDS, waits: str = "") -> None:
        self.seconds = seconds
        self.waits = waits
        self.since = time.monotonic()
        self.is_over = threading.Event()
        self.thread = threading.Thread(target=self.tell, daemon=True)

    def tell(self) -> None:
        while not self.is_over.wait(self.seconds):
            record: dict[str, object] = {"busy": True}
            if self.waits:
                record.update(waits=self.waits, seconds=round(time.monotonic() - self.since))
            try:
                os.write(1, json.dumps(record).encode() + b"\n")
            except OSError:
                return  # nobody reads any more

    def __enter__(self) -> None:
        self.thread.start()

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.thread.join(1.0)


def parsed(line: str | bytes) -> dict[str, object]:
    """The JSON object of a line; empty if there is none."""
    try:
        record = json.loads(line)
    except (ValueError, RecursionError):
        return {}
    return record if isinstance(record, dict) else {}


def read_list(text: str) -> dict[int, dict[str, object]]:
    """The entries of a list that were not undone. An incomplete last line is ignored: it was never acknowledged."""
    entries: dict[int, dict[str, object]] = {}
    for line in text.split("\n"):
        record = parsed(line)
        if isinstance(number := record.get("add"), int):
            entries[number] = record
        elif isinstance(number := record.get("undo"), int):
            entries.pop(number, None)
    return entries


def boot_id() -> str:
    """Identifies this boot of the machine; empty if the kernel does not report it."""
    try:
        with open("/proc/sys/kernel/random/boot_id", encoding="ascii") as file:
            return file.read().strip()
    except OSError:
        return ""


def due(text: str) -> dict[int, dict[str, object]]:
    """The entries of a dead guard's list that must be undone."""
    entries = read_list(text)
    boot = parsed(text.partition("\n")[0]).get("boot")
    if not boot or boot == boot_id():
        return entries
    return {number: entry for number, entry in entries.items() if "remove" in entry or entry.get("lasting") is True}


def is_outlived(text: str, token: str) -> bool:
    """Whether the list of a dead guard belongs to a process that outlives its guard and still runs."""
    pid = started = None
    for line in text.split("\n"):
        record = parsed(line)
        if isinstance(number := record.get("outlive"), int):
            pid, started = number, record.get("started")  # older lists have no start time
    return pid is not None and is_marked(pid, token) and started in (None, start_of(pid))


def open_lists(path: str) -> int:
    """The directory of the lists, opened. Raises OSError if it is none, or if somebody else could put a list there."""
    descriptor = os.open(path, DIRECTORY)
    status = os.fstat(descriptor)
    wrong = ""
    if status.st_uid != os.geteuid():
        wrong = f"belongs to user {status.st_uid}, not to {os.geteuid()}"
    elif status.st_mode & 0o022:
        wrong = f"others can write there: look at what is in it, then chmod go-w {path}"
    if wrong:
        os.close(descriptor)
        raise OSError(errno.EPERM, wrong, path)
    return descriptor


def lock(name: str, directory: int, flags: int = 0) -> int | None:
    """A list, opened and locked; None if another guard has it, or if somebody else may have written it.

    Somebody else may have if others can write it, if it is no regular file, or if it has a second name. A list without
    a name has just been removed by its own guard.
    """
    flags |= os.O_RDWR | os.O_APPEND | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
    try:
        descriptor = os.open(name, flags, 0o600, dir_fd=directory)
    except OSError as error:
        if flags & os.O_CREAT and error.errno not in (errno.EACCES, errno.ELOOP, errno.EISDIR):
            raise
        return None
    try:
        status = os.fstat(descriptor)
        safe = stat.S_ISREG(status.st_mode) and status.st_uid == os.geteuid() and not status.st_mode & 0o022
        if safe:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink == 1:
                return descriptor
    except OSError:
        pass
    os.close(descriptor)
    return None


def why_unsafe(name: str, directory: int) -> str:
    """Why no guard undoes a list of ours; empty if its guard lives, or if it is no list of ours."""
    try:
        status = os.lstat(name, dir_fd=directory)
    except OSError:
        return ""
    if not stat.S_ISREG(status.st_mode) or status.st_uid != os.geteuid():
        return ""
    if status.st_mode & 0o022:
        return "not undone, for others can write it: look at what is in it, then chmod go-w, or remove it"
    return "not undone, for it has a second name: look at what is in it, then remove one" if status.st_nlink > 1 else ""


def text_of(descriptor: int) -> str:
    """The text of an open list."""
    size = min(os.fstat(descriptor).st_size, MOST_LIST)
    return os.pread(descriptor, size, 0).decode(errors="replace")


def own_list(name: str, directory: int) -> int | None:
    """Our own list, locked. A guard that is starting may take it for a dead one's and remove it: then create it
    again.
    """
    for _ in range(100):
        descriptor = lock(name, directory, os.O_CREAT)
        if descriptor is not None:
            return descriptor
        time.sleep(0.02)
    return None


def recover(directory: int) -> tuple[int, list[str]]:
    """Undo the lists of dead guards; returns how many there were, and what could not be undone, or not in time."""
    deadline = time.monotonic() + RECOVERY_SECONDS
    count = 0
    left: list[str] = []
    for name in sorted(os.listdir(directory)):
        descriptor = lock(name, directory) if name.endswith(".undo") else None
        if descriptor is None:
            if name.endswith(".undo") and (why := why_unsafe(name, directory)):
                left.append(f"{name}: {why}")
            continue
        try:
            text, token = text_of(descriptor), name.removesuffix(".undo")
            if is_outlived(text, token):
                continue  # a lab whose guard was killed: its list is undone once it has ended
            if time.monotonic() + LEAST_SECONDS > deadline:
                left.append(f"{name}: {NOT_REACHED}")
                continue
            if text and not text.endswith("\n"):
                try_to_keep(descriptor, "\n")  # ends an incomplete line before others are appended
            failures = undo_all(token, due(text), descriptor, deadline)
            if not failures:
                os.unlink(name, dir_fd=directory)
            count += 1
            left += failures
        except Exception as error:  # one list must not keep us from the others, nor from our own
            left.append(f"{name}: {error or type(error).__name__}")
        finally:
            os.close(descriptor)
    return count, left


def keep(descriptor: int, line: str) -> None:
    data = line.encode()
    if os.write(descriptor, data) != len(data):
        os.write(descriptor, b"\n")  # ends an incomplete line before others are appended
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
    with Busy(waits=f"fsync of {os.readlink(f'/proc/self/fd/{descriptor}')}"):
        os.fsync(descriptor)


def strike_off(descriptor: int, number: int) -> None:
    """Best effort: on a full disk an entry stays listed, and undoing it again does no harm."""
    try_to_keep(descriptor, json.dumps({"undo": number}) + "\n")


def try_to_keep(descriptor: int, line: str) -> None:
    try:
        keep(descriptor, line)
    except OSError:
        pass


def lines(silence: float) -> Iterator[bytes]:
    """Lines of standard input until its end, or until none came for `silence` seconds; lines that are too long become
    empty.
    """
    rest = b""
    too_long = False
    while select.select([0], [], [], silence or None)[0]:
        chunk = os.read(0, 65536)
        if not chunk:
            return
        *whole, rest = (rest + chunk).split(b"\n")
        for line in whole:
            yield b"" if too_long else line
            too_long = False
        if len(rest) > MOST_LINE:
            rest, too_long = b"", True


def serve(source: Iterator[bytes], descriptor: int, entries: dict[int, dict[str, object]]) -> tuple[int, object] | None:
    """Answer every line; returns the pidfd of the process to be outlived and its logs, None if there is none."""
    outlived = None
    hold = Hold()
    for line in source:
        record = parsed(line)
        error = ""
        more: dict[str, object] = {}
        try:
            if isinstance(number := record.get("add"), int):
                keep(descriptor, line.decode() + "\n")
                entries[number] = record
            elif isinstance(number := record.get("undo"), int):
                entry = entries.get(number)
                with Busy():
                    error = undo(entry) if entry else ""
                if not error:
                    strike_off(descriptor, number)
                    entries.pop(number, None)  # last: if we are ended meanwhile, it is undone with the rest
            elif isinstance(number := record.get("outlive"), int):
                outlived = os.pidfd_open(number), record.get("logs")
                keep(descriptor, json.dumps({"outlive": number, "started": start_of(number)}) + "\n")
            elif isinstance(name := record.get("hold"), str):
                more["holder"] = hold.take(name, str(record.get("words", "")))
            elif "let_go" in record:
                hold.let_go()
            elif "ping" not in record:
                error = "unknown request"
        except OSError as failure:
            error = failure.strerror or str(failure)
            if "add" in record:
                error = f"the undo list cannot be written: {error}"
        except Exception as failure:
            error = str(failure) or type(failure).__name__
        print(json.dumps({"error": error, **more}), flush=True)
    return outlived


def opened(path: str) -> int:
    """The directory of the lists, created if necessary. Exits if that is impossible."""
    if not path.startswith("/"):
        sys.exit(f"{path}: no absolute path; set HOME or XDG_STATE_HOME to a directory that you can write")
    try:
        os.makedirs(path, exist_ok=True)  # with mode 0700 for each new directory, because of our umask
        return open_lists(path)
    except OSError as error:
        cure = "" if error.errno == errno.EPERM else "; set XDG_STATE_HOME to a directory that you can write"
        sys.exit(f"{error.filename or path}: {error.strerror}{cure}")


def name_process() -> None:
    """What `top` and `ps -e` show."""
    try:
        with open("/proc/self/comm", "w", encoding="ascii") as file:
            file.write("vmtax-guard")
    except OSError:
        pass  # a /proc that cannot be written


def main() -> None:
    path, silence = sys.argv[1], float(sys.argv[2])
    name_process()
    os.umask(0o077)
    os.chdir("/")
    source = lines(silence)
    about = parsed(next(source, b""))
    token = str(about.get("token", ""))
    if not token.isalnum():
        return  # vmtax ended before it told us its token: nothing is set up yet
    print(json.dumps({"hello": about.get("nonce")}), flush=True)
    directory = opened(path)
    with Busy():
        recovered, left = recover(directory)
    name = f"{token}.undo"
    try:
        descriptor = own_list(name, directory)
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}; set XDG_STATE_HOME to a directory that you can write")
    if descriptor is None:
        sys.exit(f"{path}/{name} is in use by another guard")
    if os.fstat(descriptor).st_size == 0:
        try_to_keep(descriptor, json.dumps({"boot": boot_id()}) + "\n")
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for vmtax, which then closes our input

    def leave(*_: object) -> None:
        raise SystemExit

    signal.signal(signal.SIGTERM, leave)
    signal.signal(signal.SIGHUP, leave)
    # Not empty if an earlier guard of the same run was killed and left something that could not be undone.
    entries = read_list(text_of(descriptor))
    try:
        last = max(entries, default=0)
        print(json.dumps({"recovered": recovered, "left": left[:MOST_TOLD], "last": last}), flush=True)
        outlived = serve(source, descriptor, entries)
        if outlived is not None:
            wait_for(*outlived)
    except (BrokenPipeError, SystemExit):
        pass
    finally:
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.signal(signal.SIGHUP, signal.SIG_IGN)
        with Busy():
            left = undo_all(token, entries, descriptor)
        if not left:
            os.unlink(name, dir_fd=directory)
        try:
            print(json.dumps({"left": left[:MOST_TOLD]}), flush=True)
        except OSError:
            pass  # nobody reads any more; the next guard reads the list


if __name__ == "__main__":
    main()
