"""One measurement on a machine at a time, whoever asks: the kernel has each name of an abstract socket once.

It is a part of the guard, which runs by itself on a machine: only the standard library, and no name that guard.py has
too. The socket ends with the guard, however that ends, and leaves nothing behind. Whoever finds the name taken reads
from the socket who holds it. All users of the machine share the names; a network namespace has names of its own.
Who asks and must wait has a place in a line, another socket, whose name says since when: first come, first served.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import threading
import time

MOST_WORDS = 1000  # bytes
READ_SECONDS = 2.0  # for the words of the one who holds it
HOLD_TRIES = 50  # of two guards, one may end between two system calls of the other
TURN_SECONDS = 30  # that the place of one who asks no more, such as a stopped process, is kept
EARLIER = "others who want to measure there have waited longer"
SOCKETS = "/proc/net/unix"  # its lines end with the sockets' names, in which "@" stands for the first NUL


class Turn:
    """A place in the line before one name on this machine. It ends with its process. Not usable by several threads."""

    def __init__(self) -> None:
        self.prefix = self.address = ""
        self.since = 0  # microseconds of the machine's clock that nobody sets
        self.socket: socket.socket | None = None

    def keep(self, name: str) -> None:
        """Take a place, or keep the one that we have there, for some time from now on."""
        prefix = f"vmtax-{name}/"
        if prefix != self.prefix:
            self.leave()
            self.prefix, self.since = prefix, time.monotonic_ns() // 1000
        address = f"{prefix}{self.since}/{os.getpid()}/{int(time.monotonic()) + TURN_SECONDS}"
        if address == self.address:
            return
        kept = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            kept.bind(f"\0{address}")
        except OSError:
            kept.close()
            raise
        if self.socket is not None:
            self.socket.close()
        self.address, self.socket = address, kept

    def is_next(self) -> bool:
        """Whether nobody who still asks came before us; also where the kernel does not say who does."""
        try:
            with open(SOCKETS, encoding="utf-8", errors="replace") as file:
                places = [line.rstrip("\n").partition(f" @{self.prefix}")[2].split("/") for line in file]
        except OSError:
            return True
        numbers = [[int(word) for word in each] for each in places if len(each) == 3 and all(map(is_number, each))]
        now, ours = int(time.monotonic()), (self.since, os.getpid())
        return not any(until >= now and (since, pid) < ours for since, pid, until in numbers)

    def leave(self) -> None:
        """Who asks again comes last."""
        if self.socket is not None:
            self.socket.close()
        self.prefix, self.address, self.socket = "", "", None


def is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 20


class Hold:
    """The right to measure on this machine. Not usable by several threads."""

    def __init__(self) -> None:
        self.turn = Turn()
        self.socket: socket.socket | None = None
        self.thread: threading.Thread | None = None

    def take(self, name: str, words: str) -> str:
        """Take the right `name`; returns "", or the words of the one who has it, and then we have a place in the line.

        words: what others are to read
        """
        if self.socket is not None:
            return ""
        self.turn.keep(name)
        address = f"\0vmtax-{name}"
        for _ in range(HOLD_TRIES):
            if holder := words_of_holder(address):
                return holder
            if not self.turn.is_next():
                return EARLIER
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listener.bind(address)
                listener.listen(8)
            except OSError as error:
                listener.close()
                if error.errno != errno.EADDRINUSE:
                    raise
                continue
            self.turn.leave()
            self.socket = listener
            self.thread = threading.Thread(target=tell_words, args=(listener, words.encode()[:MOST_WORDS]), daemon=True)
            self.thread.start()
            return ""
        return "another process, which begins and ends again and again"

    def let_go(self) -> None:
        """Neither hold it nor wait for it."""
        self.turn.leave()
        if self.socket is None or self.thread is None:
            return
        self.socket.shutdown(socket.SHUT_RDWR)  # ends the thread, which has the name, too, while it waits
        self.thread.join()
        self.socket.close()
        self.socket = self.thread = None


def tell_words(listener: socket.socket, words: bytes) -> None:
    """Send the words to everyone who connects, until the socket is shut down."""
    while True:
        try:
            connection = listener.accept()[0]
        except OSError:
            return
        with connection:
            try:
                connection.settimeout(READ_SECONDS)
                connection.sendall(words)
            except OSError:
                pass  # who asked is gone


def words_of_holder(address: str) -> str:
    """Who holds it, in its own words; else which process it is; "" if it has just ended."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as asking:
        asking.settimeout(READ_SECONDS)
        try:
            asking.connect(address)
        except OSError as error:
            return "" if error.errno == errno.ECONNREFUSED else "another process"
        pid, user, _ = struct.unpack("3i", asking.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12))
        words = b""
        try:
            while len(words) < MOST_WORDS and (more := asking.recv(MOST_WORDS - len(words))):
                words += more
        except OSError:
            pass
    return words.decode(errors="replace").strip() or f"process {pid} of user {user}"
