"""`vmtax` and `python -m vmtax`."""

import os

from vmtax import streams

# numpy's OpenBLAS would start a thread for each CPU, which nothing here needs; where a limit keeps it from doing so,
# it sends SIGINT to its own process.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")


def main() -> None:
    """Run the command line, which is imported only when no file that it opens can become a standard stream."""
    streams.ready()
    from vmtax.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
