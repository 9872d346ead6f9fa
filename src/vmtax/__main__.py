"""The entry point of `vmtax` and `python -m vmtax`."""

import gc
import json
import os
import resource
import sys

from vmtax.system import streams

LEAST_MEMORY = 200 * 10**6  # bytes of address space; with less, Python itself fails unpredictably

# numpy's OpenBLAS would start a thread for each CPU, which is not needed; if a limit prevents that, it sends SIGINT to
# its own process.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

# pydantic would search every installed package for plugins; vmtax uses none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "1")

# Imports create 100,000 permanent objects: garbage collection after every 700 would take a tenth of a short command.
gc.set_threshold(200_000)


def main() -> None:
    """Run the command line, which is imported only once no file that it opens can become a standard stream."""
    streams.ready()
    limit = resource.getrlimit(resource.RLIMIT_AS)[0]
    if limit != resource.RLIM_INFINITY and limit < LEAST_MEMORY:
        needed = f"{LEAST_MEMORY // 10**6} MB is the least"
        text = f"a memory limit of {limit // 10**6} MB is too small: {needed} (ulimit -v {LEAST_MEMORY // 1000})"
        if "--json" in sys.argv:
            print(json.dumps({"schema": "vmtax/1", "kind": "error", "data": {"code": 1, "message": text}}))
        sys.exit(f"vmtax: {text}")
    from vmtax.cli import main as command_line

    command_line()


if __name__ == "__main__":
    main()
