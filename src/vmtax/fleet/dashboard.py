"""A dashboard for Grafana over a shared store: what each host's VMs cost, over time and side by side.

Its form is that of https://grafana.com/docs/grafana/latest/reference/dashboard/ (schema version 39, Grafana 11).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from vmtax.store.queries import costs

Json = dict[str, Any]

SOURCE = "grafana-postgresql-datasource"
HINT = (
    "Ratios of times for the same work: +5 % is 5 % more time. Complete runs of 6 rounds and more whose guests ran on"
    " KVM; estimates without intervals, which `vmtax show RUN` and `vmtax fleet show` have."
)
CHOSEN = "experiment.name = '$plan' AND experiment.label IN ($fleet) AND metric.name = '$figure'"
NAMED = "costs.host || ', ' || layer || ' against ' || baseline"
IN_TIME = "$__unixEpochFilter(experiment.created)"
RUNS = """\
SELECT to_timestamp(created) AS time, id AS run, host, name AS plan, label AS fleet, state, result
FROM experiment WHERE {} ORDER BY created DESC LIMIT 200""".format("$__unixEpochFilter(created)")


def dashboard() -> Json:
    """The dashboard, for Grafana's import or a directory that it is provisioned from."""
    return {
        "title": "vmtax: what virtualization costs",
        "uid": "vmtax-costs",
        "description": HINT,
        "tags": ["vmtax"],
        "schemaVersion": 39,
        "editable": True,
        "refresh": "",
        "time": {"from": "now-1y", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "panels": [
            _panel(
                1, "timeseries", "Cost over time, by host", _over_time(), (0, 0, 24, 9), "time_series", percent=True
            ),
            _panel(2, "barchart", "Newest cost of each host", _newest(), (0, 9, 12, 10), "table", percent=True),
            _panel(3, "table", "Newest run of each host", _newest(whole=True), (12, 9, 12, 10), "table", percent=True),
            _panel(4, "table", "Runs", RUNS, (0, 19, 24, 9), "table"),
        ],
    }


def _of_costs(select: str, rest: str) -> str:
    return f"SELECT {select} FROM (\n{costs(f'{CHOSEN} AND {IN_TIME}')}) AS costs\n{rest}"


def _over_time() -> str:
    return _of_costs(f"time, {NAMED} AS metric, exp(log) - 1 AS value", "ORDER BY time")


def _newest(*, whole: bool = False) -> str:
    columns = "time, run, rounds, " if whole else ""
    newest = f"DISTINCT ON (costs.host, layer, baseline) {NAMED} AS host"
    return _of_costs(f"{newest}, {columns}exp(log) - 1 AS cost", "ORDER BY costs.host, layer, baseline, time DESC")


def _variables() -> list[Json]:
    source = {"name": "store", "label": "Store", "type": "datasource", "query": SOURCE, "refresh": 1}
    plans = "SELECT DISTINCT name FROM experiment ORDER BY name"
    fleets = "SELECT DISTINCT label FROM experiment WHERE name = '$plan' ORDER BY label"
    figures = (
        "SELECT DISTINCT metric.name FROM experiment JOIN trial ON trial.experiment = experiment.id"
        " JOIN measurement ON measurement.trial = trial.id JOIN metric ON metric.id = measurement.metric"
        " WHERE experiment.name = '$plan' ORDER BY metric.name"
    )
    return [
        source,
        _variable("plan", "Plan", plans),
        _variable("fleet", "Fleet", fleets, several=True),
        _variable("figure", "Figure", figures),
    ]


def _variable(name: str, label: str, query: str, *, several: bool = False) -> Json:
    return {
        "name": name,
        "label": label,
        "type": "query",
        "datasource": _store(),
        "query": query,
        "refresh": 2,
        "sort": 0,
        "multi": several,
        "includeAll": several,
        "current": {"text": "All", "value": "$__all"} if several else {},
    }


def _panel(
    id: int, kind: str, title: str, query: str, place: tuple[int, int, int, int], form: str, *, percent: bool = False
) -> Json:
    """`place`: column, row, width and height in Grafana's grid of 24 columns"""
    left, top, width, height = place
    defaults: Mapping[str, Any] = {"unit": "percentunit", "decimals": 1} if percent else {}
    return {
        "id": id,
        "type": kind,
        "title": title,
        "description": HINT if percent else "",
        "datasource": _store(),
        "gridPos": {"x": left, "y": top, "w": width, "h": height},
        "fieldConfig": {"defaults": dict(defaults), "overrides": []},
        "options": {},
        "targets": [{"refId": "A", "datasource": _store(), "format": form, "rawQuery": True, "rawSql": query}],
    }


def _store() -> Json:
    return {"type": SOURCE, "uid": "${store}"}
