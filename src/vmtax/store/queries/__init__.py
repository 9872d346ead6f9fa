"""Queries for programs that read a shared store without vmtax: PostgreSQL's SQL."""

from __future__ import annotations

from importlib import resources

from vmtax.core.layers import CONTRASTS

FEWEST_ROUNDS = 6  # with fewer there is no interval, and the figure may be chance


def costs(chosen: str = "true") -> str:
    """Rows (time, run, fleet, host, figure, layer, baseline, rounds, log) of the costs of complete runs whose guests
    were not emulated. `log`: of the ratio of times for the same work; above 0 is a cost

    chosen: a condition on the columns of `experiment` and `metric`
    """
    text = resources.files("vmtax.store.queries").joinpath("costs.sql").read_text(encoding="utf-8")
    contrasts = ", ".join(f"('{lower}', '{upper}')" for lower, upper in CONTRASTS)
    return text.format(chosen=chosen, contrasts=contrasts, rounds=FEWEST_ROUNDS)
