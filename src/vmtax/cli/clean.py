"""What `vmtax clean` does."""

from __future__ import annotations

import sys

from vmtax.cli.app import agree, answer, fail, say
from vmtax.core.errors import FAILED
from vmtax.experiment import cleanup as cleaning
from vmtax.report.answers.others import Removed
from vmtax.store import Store


def clean(*, images: bool, yes: bool, json: bool) -> None:
    """List, ask, and remove."""
    listing = sys.stderr if json else None
    with Store() as store:
        leftovers = cleaning.found(store, images=images)
        for leftover in leftovers:
            say(f"{leftover.what:>19}  {leftover.text}", file=listing)
        if not leftovers:
            say("there is nothing to remove", file=listing)
        else:
            agree(yes, "Remove all of this? [y/N]")
        left = cleaning.remove(store, images=images) if leftovers else []
    if left:
        fail("\n".join(f"could not be removed: {line}" for line in left), FAILED)
    if json:
        answer("removed", [Removed.of(leftover) for leftover in leftovers])
