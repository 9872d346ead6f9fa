"""Find a run by its id, the beginning of one, its label, or "last"."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.store import schema
from vmtax.store.failure import NoSuchRun, StoreError

NEAR = 0.6  # difflib's ratio from which a similar name is suggested


def newest_first() -> tuple[sa.ColumnElement[Any], ...]:
    """The order of experiments."""
    return schema.experiment.c.created.desc(), schema.experiment.c.id.desc()


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
    known = [(name(id), label) for id, label in _labelled(connection)]
    if not known:
        raise StoreError("no runs yet: `vmtax run` makes one")
    if wanted == "last":
        return known[0][0]
    if any(id == wanted for id, _ in known):
        return wanted
    if labelled := [id for id, label in known if label == wanted]:
        if len(labelled) > 1:
            raise NoSuchRun(f"{len(labelled)} runs have the label {wanted!r}: {_few(labelled)}: name one by its id")
        return labelled[0]
    found = [id for id, _ in known if id.startswith(wanted)]
    if len(found) == 1:
        return found[0]
    if found:
        raise NoSuchRun(f"{wanted!r} is the beginning of several runs: {_few(found)}: name one")
    raise unknown(wanted, [*(id for id, _ in known), *(label for _, label in known if label)])


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
