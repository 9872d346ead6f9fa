"""One measurement on a machine at a time, whoever asks: the kernel has each name of an abstract socket once.

It is a part of the guard, which runs by itself on a machine: only the standard library, and no name that guard.py has
too. The socket ends with the guard, however that ends, and leaves nothing behind. Whoever finds the name taken reads
from the socket who holds it. All users of the machine share the names; a network namespace has names of its own.
"""

from __future__ import annotations

import errno
import socket
import struct
import threading

MOST_WORDS = 1000  # bytes
READ_SECONDS = 2.0  # for the words of the one who holds it
HOLD_TRIES = 50  # of two guards, one may end between two system calls of the other


class Hold:
    """The right to measure on this machine. Not usable by several threads."""

    def __init__(self) -> None:
        self.socket: socket.socket | None = None
        self.thread: threading.Thread | None = None

    def take(self, name: str, words: str) -> str:
        """Take the right `name`; returns "", or the words of the one who has it. `words`: what others are to read."""
        if self.socket is not None:
            return ""
        address = f"\0vmtax-{name}"
        for _ in range(HOLD_TRIES):
            listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            try:
                listener.bind(address)
                listener.listen(8)
            except OSError as error:
                listener.close()
                if error.errno != errno.EADDRINUSE:
                    raise
                holder = words_of_holder(address)
                if holder:
                    return holder
                continue
            self.socket = listener
            self.thread = threading.Thread(target=tell_words, args=(listener, words.encode()[:MOST_WORDS]), daemon=True)
            self.thread.start()
            return ""
        return "another process, which begins and ends again and again"

    def let_go(self) -> None:
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
