"""Find a run by its id, the beginning of one, its label, or "last".

What a user types means, in this order: an id of the form that we give; a label of a run that was measured here; a label
of an imported run; an id of another form, which imports of earlier versions may have; the beginning of an id. So no run
that comes from elsewhere takes the place of one that has a name here.
"""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy import Connection

from vmtax.core.names import LAST, RUN_ID
from vmtax.store import schema
from vmtax.store.choice import is_imported
from vmtax.store.failure import NoneFits, NoSuchRun, StoreError

NEAR = 0.6  # difflib's ratio from which a similar name is suggested


@dataclass(frozen=True, slots=True)
class _Known:
    """What a run can be named by."""

    id: str
    label: str  # "": none, or a damaged one
    is_imported: bool


def newest_first() -> tuple[sa.ColumnElement[Any], ...]:
    """The order of experiments: by their arrival here, because clocks are set back, and those of other machines differ
    from ours. SQLite numbers rows in this order, and our tables of PostgreSQL have a column of that name.
    """
    return (sa.literal_column("experiment.rowid").desc(),)


def ids(connection: Connection) -> list[str]:
    """The ids of all runs, newest first."""
    return [run.id for run in _known(connection)]


def name(id: object) -> str:
    """A name for a run whose id is damaged."""
    return id if isinstance(id, str) else f"damaged-{id.hex() if isinstance(id, bytes) else id}"


def resolve(connection: Connection, wanted: str) -> str:
    """The id of the run that is meant. Raises StoreError if there is no run, and NoSuchRun if the name is ambiguous or
    unknown.
    """
    possible = candidates(connection, wanted)
    return possible[0] if wanted == LAST else the_only(wanted, possible)


def exactly(connection: Connection, id: str) -> str:
    """An id, as it was resolved before, or a name to resolve."""
    return id if id in ids(connection) else resolve(connection, id)


def candidates(connection: Connection, wanted: str) -> list[str]:
    """The ids of all runs that may be meant, newest first, and at least one. Raises as `resolve`, but may be
    ambiguous.
    """
    known = _known(connection)
    if not known:
        raise NoneFits("no runs yet: `vmtax run` makes one")
    if wanted == LAST:
        return [run.id for run in known]
    same_id = [run.id for run in known if run.id == wanted]
    labelled = [run for run in known if run.label == wanted]
    meanings = (
        same_id if RUN_ID.fullmatch(wanted) else [],
        [run.id for run in labelled if not run.is_imported],
        [run.id for run in labelled],
        same_id,
        [run.id for run in known if run.id.startswith(wanted)],
    )
    if meant := next(filter(None, meanings), None):
        return meant
    raise unknown(wanted, [*(run.id for run in known), *(run.label for run in known if run.label)])


def holder(connection: Connection, label: str) -> str | None:
    """The id of the newest run that this label would mean, also as the beginning of its id; None if it is free."""
    return next((run.id for run in _known(connection) if run.label == label or run.id.startswith(label)), None)


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


def _known(connection: Connection) -> list[_Known]:
    """All runs, newest first."""
    c = schema.experiment.c
    rows = connection.execute(sa.select(c.id, c.label, c.host).order_by(*newest_first()))
    return [_Known(name(id), label if isinstance(label, str) else "", is_imported(host)) for id, label, host in rows]


def _few(ids: Sequence[str]) -> str:
    return ", ".join(ids[:5]) + (f" and {len(ids) - 5} more" if len(ids) > 5 else "")
