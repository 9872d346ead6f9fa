"""Put one command to a guest agent at its socket, and print its answer. Standard library only; arguments: the socket,
seconds for an answer; standard input: the command, a line of JSON.
"""

import os
import socket
import sys


def main(path: str, seconds: float) -> None:
    """Ends with what is wrong if no answer comes."""
    number = int.from_bytes(os.urandom(4), "big")
    answer = b""
    try:
        link = socket.socket(socket.AF_UNIX)
        link.settimeout(seconds)
        link.connect(path)
        stream = link.makefile("rwb")
        # Who asked before may have left half a command there, and an answer: the first byte and the number end both.
        stream.write(b'\xff{"execute":"guest-sync-delimited","arguments":{"id":%d}}\n' % number)
        stream.flush()
        while (line := stream.readline()) and str(number).encode() not in line:
            pass
        stream.write(sys.stdin.buffer.readline())
        stream.flush()
        answer = stream.readline()
    except OSError as error:
        sys.exit(f"it gave no answer at {path}: {error}")
    if not answer:
        sys.exit(f"it ended the connection at {path}")
    sys.stdout.buffer.write(answer)


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]))
