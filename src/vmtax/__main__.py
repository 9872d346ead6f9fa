"""`vmtax` and `python -m vmtax`."""

from vmtax.cli import main

if __name__ == "__main__":
    main()
