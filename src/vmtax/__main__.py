"""`vmtax` and `python -m vmtax`."""

from vmtax import streams


def main() -> None:
    """Run the command line, which is imported only when no file that it opens can become a standard stream."""
    streams.ready()
    from vmtax.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
