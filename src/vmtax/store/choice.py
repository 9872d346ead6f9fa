"""Which run is meant where several could be: by "last", and by a label or the beginning of an id that several have.

Each use states what it wants by one of the conditions here. Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from vmtax.store.failure import NoneFits
from vmtax.store.summary import ExperimentSummary

Fits = Callable[[ExperimentSummary], bool]
IMPORTED = ", imported"  # end of the host's name in a run that was measured elsewhere


@dataclass(frozen=True, slots=True)
class RunChoice:
    """The run that is meant."""

    run: ExperimentSummary
    note: str = ""  # in one line, which runs were passed over, or why it is less than was wanted; "": nothing to say


def is_imported(host: object) -> bool:
    """Whether the host's name says that the run was measured elsewhere."""
    return isinstance(host, str) and host.endswith(IMPORTED)


def has_result(run: ExperimentSummary) -> bool:
    """For those who read results: it has ended, and something can be compared, or it came to its own end."""
    return (
        run.state in ("complete", "interrupted", "failed")
        and run.ok > 0
        and (run.rounds > 0 or run.state == "complete")
    )


def has_trials(run: ExperimentSummary) -> bool:
    """For those who read results where there is nothing better: something was measured."""
    return run.state != "damaged" and run.ok > 0


def is_whole(run: ExperimentSummary) -> bool:
    """For those who read why there is nothing."""
    return run.state != "damaged"


RESULTS = (has_result, has_trials, is_whole)  # what those who read results want, in this order


def is_running(run: ExperimentSummary) -> bool:
    """For following it."""
    return run.state == "running"


def was_stopped(run: ExperimentSummary) -> bool:
    """For going on: only a run that was measured here, and that nobody measures just now."""
    return run.state in ("interrupted", "failed") and not is_imported(run.host)


def choose(meant: Sequence[ExperimentSummary], wanted: Sequence[Fits]) -> RunChoice:
    """Of all runs that a name may mean, newest first: the newest that fits the first condition; if none does, the
    second, and so on. Raises NoneFits if no run fits any.
    """
    for fits in wanted:
        for place, run in enumerate(meant):
            if fits(run):
                least = "" if fits is wanted[0] else f"no run has a result yet; run {_lacks(run)}"
                return RunChoice(run, least or passed_over(meant[:place], run))
    raise NoneFits(f"no run is of use here: the newest, {_lacks(meant[0])}")


def passed_over(passed: Sequence[ExperimentSummary], run: ExperimentSummary) -> str:
    """The note of a choice that left these out, newest first."""
    if not passed:
        return ""
    more = f", and so have {len(passed) - 1} more" if passed[1:] else ""
    return f"run {_lacks(passed[0])}{more}; this is {run.id}"


def _lacks(run: ExperimentSummary) -> str:
    """Why it has no result."""
    how = {
        "running": "is still measured",
        "damaged": "is damaged",
        "complete": f"has no result: all {run.failed} trials failed"
        if run.failed
        else "has no result: it has no trials",
    }
    return f"{run.id} {how.get(run.state, f'has no result: it was {_ended(run)}')}"


def _ended(run: ExperimentSummary) -> str:
    word = "interrupted" if run.state == "interrupted" else "ended by a failure"
    return f"{word} in its first round" if not run.rounds else f"{word}, and all {run.failed} trials failed"
