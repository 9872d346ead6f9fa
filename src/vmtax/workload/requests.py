"""Executed by Python inside the userland: serves requests that arrive at given times, and prints one line of JSON about
how long those took that count.

Standard library only. Arguments: requests per second, seconds that count, seconds of the same work before and after
them, bytes of a page, number of the machine and, if it waits at a barrier, the directory of its pipes. One request
arrives in each slot of 1/rate seconds, at a moment that follows from the machine's number: machines do not work in
step, and each run is the same. A request waits for those before it, and its time runs from its arrival.
"""

import hashlib
import json
import math
import pathlib
import random
import sys
import time


def wait_in(directory: str) -> None:
    """Say that we have started, and wait until the machines begin."""
    pathlib.Path(directory, "ready").write_text("\n", encoding="ascii")
    pathlib.Path(directory, "go").read_text(encoding="ascii")


def main() -> None:
    rate, seconds, lead = map(float, sys.argv[1:4])
    page, moments = bytes(int(sys.argv[4])), random.Random(int(sys.argv[5]))
    whole = seconds + 2 * lead
    arrivals = [(number + moments.random()) / rate for number in range(int(whole * rate))]
    if sys.argv[6:]:
        wait_in(sys.argv[6])
    began = time.monotonic()
    times = []
    answered = counted = 0
    for arrival in arrivals:
        if (wait := began + arrival - time.monotonic()) > 0:
            time.sleep(wait)
        is_over = time.monotonic() > began + whole
        if not is_over:
            hashlib.sha256(page).digest()
        if lead <= arrival < lead + seconds:
            counted += 1
            answered += not is_over
            # At least this long, if it was not served before the end
            times.append((time.monotonic() if not is_over else began + whole) - began - arrival)
    times.sort()
    found = {
        "asked": counted,
        "answered": answered,
        "p99": times[math.ceil(0.99 * counted) - 1],
        "seconds": seconds,
        "lead": lead,
        "rest": max(0.0, time.monotonic() - began - whole),
    }
    with open(1, "w", encoding="ascii") as answer:
        answer.write(f"vmtax requests: {json.dumps(found)}\n")


if __name__ == "__main__":
    main()
