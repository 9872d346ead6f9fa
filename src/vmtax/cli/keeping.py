"""What is computed once when a run has ended or arrived, and kept."""

from __future__ import annotations

import contextlib

from vmtax.analysis import results
from vmtax.analysis.analysis import Analysis
from vmtax.cli.many import keep_costs
from vmtax.report.wording.headline import in_few_words
from vmtax.store import Store, StoreError


def keep_results(store: Store, id: str) -> None:
    """Compute what every report of this run needs, and store it with the run, together with its headline for lists.

    This is done here because only cli knows both sides: the run does not know the reports, and the store computes
    nothing.
    """
    experiment = store.load(id)
    with contextlib.suppress(StoreError):  # for example, the disk is full: it is computed again when it is shown
        analysis = Analysis(experiment)
        store.keep_headline(id, in_few_words(analysis))
        store.keep_results(experiment, results.written(analysis.results))
    keep_costs(store, experiment)
