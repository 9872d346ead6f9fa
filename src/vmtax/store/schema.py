"""The tables. They use only what SQLite and PostgreSQL both have, except where a name says which one."""

from __future__ import annotations

import math
from typing import Any

import sqlalchemy as sa

# A trial has one result: its key is unique among those that worked, while one that failed may be repeated.
KEY = ("experiment", "round", "treatment", "workload", "case", "iteration", "machine")
_KEY = ", ".join(f'"{name}"' for name in KEY)
AGAIN = (
    "the same trial has a result already: two processes measured this run at the same time, and disturbed each other"
)
VERSION = 8  # increase it with every change of the tables, and add the step to MIGRATIONS
# Version -> statements that lead to the next. A new store begins at VERSION, so PostgreSQL, which came with 8, never
# sees those of earlier versions.
MIGRATIONS = {
    1: (
        "ALTER TABLE experiment ADD COLUMN options JSON NOT NULL DEFAULT '{}'",
        "ALTER TABLE trial ADD COLUMN disturbance JSON",
        "ALTER TABLE trial ADD COLUMN latencies JSON NOT NULL DEFAULT '[]'",
    ),
    2: (
        "ALTER TABLE experiment ADD COLUMN ended TEXT",
        "ALTER TABLE treatment ADD COLUMN repeats TEXT",
        "ALTER TABLE treatment ADD COLUMN side TEXT NOT NULL DEFAULT ''",
    ),
    3: ("ALTER TABLE trial ADD COLUMN machine TEXT NOT NULL DEFAULT ''",),
    4: ("ALTER TABLE trial ADD COLUMN readings JSON NOT NULL DEFAULT '{}'",),
    5: (
        "ALTER TABLE experiment ADD COLUMN label TEXT NOT NULL DEFAULT ''",
        "ALTER TABLE experiment ADD COLUMN seconds DOUBLE",
        "ALTER TABLE experiment ADD COLUMN result TEXT NOT NULL DEFAULT ''",
    ),
    6: ("ALTER TABLE boot ADD COLUMN obtained JSON NOT NULL DEFAULT '{}'",),
    7: (  # of results that were recorded twice, the first counts, and a note of the run says so
        f"UPDATE trial SET status = 'refused', error = '{AGAIN}' WHERE id IN (SELECT id FROM (SELECT id, row_number()"
        f" OVER (PARTITION BY {_KEY} ORDER BY number) AS time FROM trial WHERE status = 'ok') AS timed WHERE time > 1)",
        f"DELETE FROM measurement WHERE trial IN (SELECT id FROM trial WHERE error = '{AGAIN}')",
        "INSERT INTO note (experiment, text) SELECT experiment, 'Trials that do not count, because ' ||"
        f" '{AGAIN}: ' || count(*) || '.' FROM trial WHERE error = '{AGAIN}' GROUP BY experiment",
        f"CREATE UNIQUE INDEX trial_result ON trial ({_KEY}) WHERE status = 'ok'",
    ),
}


def storable(text: str) -> str:
    """The text as `_Text` stores it."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\x00")


class _Text(sa.types.TypeDecorator[str]):
    """Text in which undecodable bytes (lone surrogates) and NUL, which PostgreSQL refuses, become escapes, so that they
    cannot cost a trial.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: sa.Dialect) -> Any:
        # A value that is no text comes from a damaged cell, and is searched for unchanged.
        return storable(value) if isinstance(value, str) else value


class _Finite(sa.types.TypeDecorator[float]):
    """A finite number, because SQLite would silently turn nan into NULL."""

    impl = sa.Double
    cache_ok = True

    def process_bind_param(self, value: float | None, dialect: sa.Dialect) -> float | None:
        if value is not None and not math.isfinite(value):
            raise ValueError(f"{value} is not a finite number")
        return value


def _column(name: str, kind: Any, *rest: Any, **more: Any) -> sa.Column[Any]:
    return sa.Column(name, kind, *rest, **{"nullable": False, **more})


def _of_experiment(**more: Any) -> sa.Column[Any]:
    return _column("experiment", _Text, sa.ForeignKey("experiment.id"), **more)


def _of_treatment() -> sa.ForeignKeyConstraint:
    return sa.ForeignKeyConstraint(["experiment", "treatment"], ["treatment.experiment", "treatment.name"])


NUMBER = sa.BigInteger().with_variant(sa.Integer(), "sqlite")  # of rows that many hosts add; SQLite's have 64 bits too
RESULT = sa.text("status = 'ok'")
TABLES = sa.MetaData()
meta = sa.Table("meta", TABLES, _column("key", _Text, primary_key=True), _column("value", _Text))
experiment = sa.Table(
    "experiment",
    TABLES,
    _column("id", _Text, primary_key=True),
    _column("name", _Text),
    _column("host", _Text),
    _column("command", _Text),
    _column("created", _Finite),
    _column("finished", _Finite, nullable=True),
    _column("state", _Text),
    _column("plan", sa.JSON),
    # The process that runs it: a process id alone is reused, also after a reboot.
    _column("owner_pid", sa.Integer),
    _column("owner_boot", _Text),
    _column("owner_start", _Text),
    _column("options", sa.JSON),
    _column("ended", _Text, nullable=True),
    _column("label", _Text, server_default=""),
    _column("seconds", _Finite, nullable=True),
    _column(
        "result", _Text, server_default=""
    ),  # its headline in few words, for a list of runs; "" if none was computed
)
treatment = sa.Table(
    "treatment",
    TABLES,
    _of_experiment(primary_key=True),
    _column("name", _Text, primary_key=True),
    _column("ordinal", sa.Integer),
    _column("layer", _Text),
    _column("levels", sa.JSON),
    _column("repeats", _Text, nullable=True),
    _column("side", _Text),
)
boot = sa.Table(
    "boot",
    TABLES,
    _column("id", NUMBER, primary_key=True),
    _of_experiment(index=True),
    _column("round", sa.Integer),
    _column("treatment", _Text),
    _column("path", _Text),
    _column("accelerator", _Text),
    _column("emulated", sa.Boolean),
    _column("argv", sa.JSON),
    _column("ready_seconds", _Finite),
    _column("kernel_seconds", _Finite),
    _column("warnings", sa.JSON),
    _column("obtained", sa.JSON),
    _of_treatment(),
)
trial = sa.Table(
    "trial",
    TABLES,
    _column("id", NUMBER, primary_key=True),
    _of_experiment(),
    _column("number", sa.Integer),  # from 1 within the experiment, in the order of commits
    _column("round", sa.Integer),
    _column("position", sa.Integer),
    _column("treatment", _Text),
    _column("workload", _Text),
    _column("case", _Text),
    _column("iteration", sa.Integer),
    _column("status", _Text),
    _column("started", _Finite),
    _column("wall_seconds", _Finite),
    _column("warnings", sa.JSON),
    _column("error", _Text, nullable=True),
    _column("raw", _Text, nullable=True),  # file name under raw/<experiment>/; NULL if the tool printed nothing
    _column("disturbance", sa.JSON(none_as_null=True), nullable=True),
    _column("latencies", sa.JSON),
    _column("machine", _Text),
    _column("readings", sa.JSON),
    _of_treatment(),
    sa.UniqueConstraint("experiment", "number"),
    sa.Index("trial_result", *KEY, unique=True, sqlite_where=RESULT, postgresql_where=RESULT),
)
metric = sa.Table(
    "metric",
    TABLES,
    _column("id", NUMBER, primary_key=True),
    _column("name", _Text),
    _column("unit", _Text),
    _column("better", _Text),
    sa.UniqueConstraint("name", "unit", "better"),
)
measurement = sa.Table(
    "measurement",
    TABLES,
    _column("trial", NUMBER, sa.ForeignKey("trial.id"), primary_key=True),
    _column("ordinal", sa.Integer, primary_key=True),
    _column("metric", NUMBER, sa.ForeignKey("metric.id")),
    _column("value", _Finite),
    sqlite_with_rowid=False,  # rows are stored in the order in which they are read
)
facts = sa.Table(
    "facts",
    TABLES,
    _of_experiment(primary_key=True),
    _column("path", _Text, primary_key=True),  # machine path: "host/vm"
    _column("facts", sa.JSON),
)
note = sa.Table(
    "note", TABLES, _column("id", NUMBER, primary_key=True), _of_experiment(index=True), _column("text", _Text)
)
