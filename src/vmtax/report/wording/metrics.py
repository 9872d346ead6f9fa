"""What a metric is about, in words that fit into a sentence. Pure."""

from __future__ import annotations

import re

from vmtax.core.records import Metric
from vmtax.report.view import label, split, title

_PATTERN = re.compile(
    r"(?P<first>first-|re)?(?P<random>rand)?(?P<way>read|write|rw)-(?P<size>\d+)(?P<unit>[km]?)"
    r"(?:-qd(?P<depth>\d+)|-(?P<fsync>fsync))?"
)
_WAYS = {"read": "reads", "write": "writes", "rw": "reads and writes"}
_SIZES = {"": "B", "k": "KiB", "m": "MiB"}


def spoken(metric: Metric) -> str:
    """ "4 KiB random writes (one at a time)"; for what is no disk pattern, what the tables call it."""
    workload, case, measure = split(metric)
    words = pattern_words(case) if workload == "disk" else None
    if words is None:
        told = label(metric)
        return f"{title(workload)} {case if case and case not in told else ''} {told}".replace("  ", " ")
    return words if measure == "iops" else f"the {label(metric)} of {words}"


def pattern_words(case: str) -> str | None:
    """A disk pattern's name in words; None where it is none of that shape."""
    match = _PATTERN.fullmatch(case)
    if not match:
        return None
    size = f"{match['size']} {_SIZES[match['unit']]}"
    if match["first"]:
        return f"{'first writes' if match['first'] == 'first-' else 'rewrites'} of {size}"
    order = "mixed random" if match["way"] == "rw" else "random" if match["random"] else "sequential"
    waiting = {None: "", "1": " (one at a time)"}.get(match["depth"], f" ({match['depth']} at once)")
    return f"{size} {order} {_WAYS[match['way']]}{waiting}{' (each with fsync)' if match['fsync'] else ''}"
