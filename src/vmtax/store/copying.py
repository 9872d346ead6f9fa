"""Copy runs from one store to another, of the same kind or not, and compare what arrived."""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Literal

from vmtax.core.records import Experiment, Trial
from vmtax.store.failure import StoreError
from vmtax.store.model import json_pieces
from vmtax.store.store import Store

Outcome = Literal["copied", "there already", "damaged", "running", "different"]
NUL, ESCAPED = rb"\u0000", rb"\\x00"  # in JSON: what a store keeps in place of NUL


@dataclass(frozen=True, slots=True)
class CopiedRun:
    """What became of one run."""

    id: str
    outcome: Outcome
    trials: int = 0  # that are in both stores
    why: str = ""  # it is not in the other store as it is in this one


def copy_runs(source: Store, target: Store, tell: Callable[[CopiedRun], None]) -> Counter[Outcome]:
    """Copy all runs that the target lacks, in the order of their arrival, one commit each, with their raw outputs and
    results. Each is read again and compared: number of trials, and digests of all records and of all raw outputs.
    """
    present = {entry.id for entry in target.experiments()}
    outcomes: Counter[Outcome] = Counter()
    for entry in reversed(source.experiments()):
        if entry.state in ("damaged", "running"):
            done = CopiedRun(entry.id, "damaged" if entry.state == "damaged" else "running")
        else:
            try:
                done = _copied(source, target, entry.id, is_present=entry.id in present)
            except StoreError as error:
                done = CopiedRun(entry.id, "different", why=str(error))
        outcomes[done.outcome] += 1
        tell(done)
    return outcomes


def _copied(source: Store, target: Store, id: str, *, is_present: bool) -> CopiedRun:
    run = source.load(id)
    if not is_present:
        target.put(replace(run, trials=()), _with_raw(source, run))
        if text := source.results(run):
            target.keep_results(target.load(id), text)
        headline = next(entry.result for entry in source.experiments() if entry.id == id)
        target.keep_headline(id, headline)
    arrived = target.load(id)
    if len(arrived.trials) != len(run.trials):
        return CopiedRun(id, "different", why=f"{len(run.trials)} trials here, {len(arrived.trials)} there")
    for what, digest in (("records", _records_digest), ("raw outputs", _raw_digest)):
        if digest(source, run) != digest(target, arrived):
            return CopiedRun(id, "different", why=f"the {what} there are not those here")
    return CopiedRun(id, "there already" if is_present else "copied", len(run.trials))


def _with_raw(store: Store, run: Experiment) -> Iterator[Trial]:
    for trial, raw in zip(run.trials, store.raws(run.id), strict=True):
        if isinstance(raw, StoreError):
            raise raw
        yield replace(trial, raw=raw)


def _records_digest(_: Store, run: Experiment) -> str:
    """Of all records, with NUL as a store keeps it: earlier versions stored it as it was."""
    digest = hashlib.blake2b(digest_size=32)
    for piece in json_pieces(run):
        digest.update(piece.replace(NUL, ESCAPED))
    return digest.hexdigest()


def _raw_digest(store: Store, run: Experiment) -> str:
    digest = hashlib.blake2b(digest_size=32)
    for raw in store.raws(run.id):
        text = raw if isinstance(raw, str) else "cannot be read"
        digest.update(f"{len(text)}:".encode() + text.encode("utf-8", "surrogatepass"))
    return digest.hexdigest()
