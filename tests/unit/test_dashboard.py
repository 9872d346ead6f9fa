"""The dashboard for Grafana: every variable that a query uses is one of its own, and no panel covers another."""

from __future__ import annotations

import itertools
import re

from vmtax.core.layers import CONTRASTS
from vmtax.fleet.dashboard import dashboard
from vmtax.store.queries import costs

PANELS = dashboard()["panels"]
VARIABLES = dashboard()["templating"]["list"]


def test_queries_use_variables_that_there_are_and_macros_of_grafana() -> None:
    queries = [panel["targets"][0]["rawSql"] for panel in PANELS] + [each["query"] for each in VARIABLES]
    used = {name for query in queries for name in re.findall(r"\$\{?(\w+)", query)}
    assert used - {each["name"] for each in VARIABLES} == {"__unixEpochFilter"}
    assert all(query.count("(") == query.count(")") for query in queries)


def test_panels_have_numbers_of_their_own_and_do_not_cover_each_other() -> None:
    assert len({panel["id"] for panel in PANELS}) == len(PANELS)
    for one, other in itertools.combinations([panel["gridPos"] for panel in PANELS], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        assert beside or one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert one["x"] + one["w"] <= 24


def test_each_contrast_of_the_program_is_in_the_query() -> None:
    assert all(f"('{lower}', '{upper}')" in costs() for lower, upper in CONTRASTS)
    assert "{" not in costs() and "AND metric.name = 'x'" in costs("metric.name = 'x'")
