"""Names that users give, and those of runs. Pure.

A run is named by its id, by a label or by "last". These are one name space: no label looks like an id, every id of a
run that is made or imported has the form of RUN_ID, and none of them is "last".
"""

from __future__ import annotations

import re
import secrets
import time

LAB = re.compile(r"[a-z0-9][a-z0-9-]{0,19}")  # 20 characters, because names of network interfaces are derived from it
LAST = "last"  # the newest run, by the order in which runs arrived in the store
RUN_ID = re.compile(r"\d{8}-\d{4}-(?=[a-z0-9-]{1,32}-[0-9a-f]{4}$)[a-z0-9]+(?:-[a-z0-9]+)*-[0-9a-f]{4}", re.ASCII)
EXAMPLE_ID = "20261121-0412-quick-7f3a"
LIKE_AN_ID = re.compile(r"\d{8}(-|$)")  # prefix of run ids
LONGEST_LABEL = 40  # characters
LONGEST_SLUG = 32  # characters of a plan's name in an id


def new_id(plan: str, when: float) -> str:
    """An id of the form of RUN_ID, such as EXAMPLE_ID; its time is UTC, so that ids sort by time."""
    slug = re.sub(r"[^a-z0-9]+", "-", plan.lower())[:LONGEST_SLUG].strip("-") or "run"
    return f"{time.strftime('%Y%m%d-%H%M', time.gmtime(when))}-{slug}-{secrets.token_hex(2)}"


def label_problem(text: str) -> str | None:
    """Why a run cannot have this label; None if it can."""
    if not 0 < len(text) <= LONGEST_LABEL:
        return f"must have from 1 to {LONGEST_LABEL} characters"
    if not text.isprintable() or text.strip() != text:
        return "must be printable, and neither begin nor end with a space"
    if "," in text or text.startswith("-"):
        return "must neither hold a comma nor begin with a hyphen, which mean something else on a command line"
    if text == LAST:
        return "always means the newest run; name something else, such as before"
    return "looks like a run's id: name something else, such as before" if LIKE_AN_ID.match(text) else None
