"""Find a run by its id, the beginning of one, its label, or "last"."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.store import schema
from vmtax.store.failure import NoneFits, NoSuchRun, StoreError

NEAR = 0.6  # difflib's ratio from which a similar name is suggested


def newest_first() -> tuple[sa.ColumnElement[Any], ...]:
    """The order of experiments: by their arrival here, because clocks are set back, and those of other machines differ
    from ours. SQLite numbers rows in this order.
    """
    return (sa.literal_column("experiment.rowid").desc(),)


def ids(connection: Connection) -> list[str]:
    """The ids of all runs, newest first."""
    return [name(id) for id, _ in _labelled(connection)]


def name(id: object) -> str:
    """A name for a run whose id is damaged."""
    return id if isinstance(id, str) else f"damaged-{id.hex() if isinstance(id, bytes) else id}"


def resolve(connection: Connection, wanted: str) -> str:
    """The id of the run that is meant. Raises StoreError if there is no run, and NoSuchRun if the name is ambiguous or
    unknown.
    """
    found = candidates(connection, wanted)
    return found[0] if wanted == "last" else the_only(wanted, found)


def candidates(connection: Connection, wanted: str) -> list[str]:
    """The ids of all runs that may be meant, newest first, and at least one. Raises as `resolve`, but may be
    ambiguous.
    """
    known = [(name(id), label) for id, label in _labelled(connection)]
    if not known:
        raise NoneFits("no runs yet: `vmtax run` makes one")
    if wanted == "last":
        return [id for id, _ in known]
    if any(id == wanted for id, _ in known):
        return [wanted]
    if labelled := [id for id, label in known if label == wanted]:
        return labelled
    if found := [id for id, _ in known if id.startswith(wanted)]:
        return found
    raise unknown(wanted, [*(id for id, _ in known), *(label for _, label in known if label)])


def the_only(wanted: str, found: Sequence[str]) -> str:
    """The only one of the runs that a label or the beginning of an id means. Raises NoSuchRun if there are more."""
    if len(found) == 1:
        return found[0]
    if any(id.startswith(wanted) for id in found):
        raise NoSuchRun(f"{wanted!r} is the beginning of several runs: {_few(found)}: name one")
    raise NoSuchRun(f"{len(found)} runs have the label {wanted!r}: {_few(found)}: name one by its id")


def unknown(wanted: str, known: Sequence[str]) -> StoreError:
    """The error for a run that is not in the store; `known`: the existing names."""
    nearest = difflib.get_close_matches(wanted, known, n=3, cutoff=NEAR)
    hint = f"nearest: {_few(list(dict.fromkeys(nearest)))}" if nearest else "`vmtax runs` lists them all"
    return NoSuchRun(f"no run {wanted!r}; {hint}")


def _labelled(connection: Connection) -> list[tuple[Any, str]]:
    """(id as stored, label), newest first; damaged labels are left out."""
    c = schema.experiment.c
    found = connection.execute(sa.select(c.id, c.label).order_by(*newest_first()))
    return [(id, label if isinstance(label, str) else "") for id, label in found]


def _few(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
