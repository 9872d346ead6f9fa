"""Connect standard input and output to a socket: ssh's ProxyCommand. Standard library only; argument: its path."""

import contextlib
import os
import socket
import sys
import threading

BYTES = 2**16


def main(path: str) -> None:
    """Copy in both directions until the other side ends."""
    link = socket.socket(socket.AF_UNIX)
    try:
        link.connect(path)
    except OSError as error:
        sys.exit(f"{path}: {error.strerror}")

    def send() -> None:
        with contextlib.suppress(OSError):  # the other thread ends with the connection, too
            while data := os.read(0, BYTES):
                link.sendall(data)
            link.shutdown(socket.SHUT_RDWR)

    threading.Thread(target=send, daemon=True).start()
    with contextlib.suppress(ConnectionError):  # so ends a port that is unplugged, or a client that has gone
        while data := link.recv(BYTES):
            left = memoryview(data)
            while left:
                left = left[os.write(1, left) :]


if __name__ == "__main__":
    main(sys.argv[1])
