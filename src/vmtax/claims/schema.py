"""A published claim as data: tables of figures, what was said of them, and set-ups. YAML text → validated records."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, ValidationError, model_validator

from vmtax.claims.figures import PrintedNumber, mean, parsed
from vmtax.claims.files import CLAIM
from vmtax.claims.known import links
from vmtax.claims.words import Recomputed, Says, Word, recomputed
from vmtax.core.quantities import Quantity
from vmtax.core.units import parse_bytes, show
from vmtax.plan.errors import Place, PlanError, Problem, problems_of, raise_problems, unknown
from vmtax.plan.file import plan_text
from vmtax.plan.yaml import read

Text = Annotated[str, Field(strict=True, min_length=1, max_length=400)]
Remark = Annotated[str, Field(strict=True, min_length=1, max_length=2000)]
Size = Annotated[int, Quantity(parse_bytes, "1B", "1024TiB", "4KiB")]
ClaimLayer = Literal["host", "container", "vm", "nested"]
Shows = Literal["run time", "latency", "rate", "throughput", "share", "size", "score"]
Lacks = Literal["n", "method", "source", "unit"]


def _figure(value: object) -> PrintedNumber:
    if isinstance(value, PrintedNumber):
        return value
    if not isinstance(value, str):
        raise ValueError(f"must be a number as printed, such as 4.14, not {show(value)}")
    return parsed(value)


def _plausible(year: int) -> int:
    if not 1950 <= year <= 2100:
        raise ValueError(f"must be a year from 1950 to 2100, not {year}")
    return year


def _pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise ValueError(f"must be a regular expression: {error}") from None
    return text


def _not_negative(figure: PrintedNumber) -> PrintedNumber:
    if figure.value < 0:
        raise ValueError(f"must be at least 0: it is a standard deviation, not {figure.text}")
    return figure


PrintedFigure = Annotated[PrintedNumber, BeforeValidator(_figure)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, arbitrary_types_allowed=True)


class QueueLoad(_Model):
    """How much work was under way while a row was measured."""

    rate: PrintedFigure = Field(description="operations per second")
    latency: PrintedFigure = Field(description="mean time of an operation, in seconds")
    queue: Annotated[int, Field(ge=1, le=10**9)] | None = Field(
        None, description="operations that were always under way: jobs times depth; none: not fixed, or not known"
    )


class ClaimRow(_Model):
    """A configuration and its figure."""

    value: PrintedFigure | None = Field(None, description="the figure, as printed; or give its runs")
    runs: tuple[PrintedFigure, ...] = Field((), max_length=1000, description="the figure of each run")
    printed: PrintedFigure | None = Field(None, description="what the source prints as the mean of the runs")
    sd: Annotated[PrintedFigure, AfterValidator(_not_negative)] | None = Field(
        None, description="standard deviation of the runs"
    )
    n: Annotated[int, Field(ge=1, le=10**9)] | None = Field(None, description="number of runs, beside `sd`")
    label: Text | None = Field(None, description="the row's name in the source, if it has that of another row")
    setup: Text | None = Field(None, description="its entry in `setup`; default: the one with the row's name")
    layer: ClaimLayer | None = Field(None, description="where it ran: host, container, vm or nested")
    levels: Mapping[Text, Text] = Field({}, description="factor: level of the configuration of vmtax like it")
    load: QueueLoad | None = Field(None, description="rate, latency and queue of this row, for Little's law")
    shown: Text | None = Field(None, description="the figure in words, if only its order of magnitude was printed")

    @model_validator(mode="after")
    def _has_a_figure(self) -> ClaimRow:
        if (self.value is None) == (not self.runs):
            raise ValueError("needs either `value` or `runs`, the figures of single runs")
        if self.printed is not None and not self.runs:
            raise ValueError("`printed` is the printed mean of `runs`, so it needs them; a figure alone is `value`")
        return self

    @cached_property
    def figure(self) -> PrintedNumber:
        """Its value, or the mean of its runs."""
        return self.value or mean(self.runs)


class Derived(_Model):
    """What the source says of two rows."""

    of: Text = Field(description="a row")
    base: Text | None = Field(None, description="the row that it is compared with")
    word: Word = Field(description="share, loss, gain: of speed; more, less: of the figure; times, difference, scaled")
    printed: PrintedFigure | None = Field(
        None, description="the printed number; none: not printed, shown for comparison"
    )
    says: Says = Field("exactly", description="exactly, about, at most or at least")
    scale: PrintedFigure | None = Field(None, description="of `scaled`: the factor, such as KiB per operation")
    shown: Text | None = Field(None, description="the comparison in words, if only its order of magnitude was printed")

    @model_validator(mode="after")
    def _complete(self) -> Derived:
        if self.word == "scaled":
            if self.scale is None or self.base is not None:
                raise ValueError("`word: scaled` needs `scale`, the factor, and no `base`")
        elif self.base is None or self.scale is not None:
            raise ValueError(f"`word: {self.word}` needs `base`, the row that it is compared with, and no `scale`")
        elif self.base == self.of:
            raise ValueError(f"compares {show(self.of)} with itself: name two rows")
        return self


class RowPair(_Model):
    """Two rows."""

    of: Text = Field(description="a row")
    base: Text = Field(description="the row that it is compared with")


class Headline(_Model):
    """One number for several comparisons."""

    printed: PrintedFigure = Field(description="the number of the headline")
    word: Word = Field(description="as in `derived`; not `scaled`")
    over: tuple[RowPair, ...] = Field(min_length=1, max_length=1000, description="the comparisons that it stands for")


class Mention(_Model):
    """A row that the source's text mentions."""

    row: Text = Field(description="a row")
    value: PrintedFigure | None = Field(None, description="the figure that the text gives")
    setup: Text | None = Field(None, description="the set-up that the text gives it")


class MeasuringTool(_Model):
    """The program that measured."""

    name: Text = Field(description="its name, such as fio")
    test: Text | None = Field(None, description="its test, such as cpu of sysbench")
    version: Text | None = Field(None, description='its version, such as "1.0"')
    options: Mapping[Text, Text] = Field({}, description="option: value, without dashes")


def _known_link(name: str) -> str:
    if name not in links():
        raise ValueError(str(unknown("device or link", name, links())))
    return name


class Through(_Model):
    """What everything goes through, as facts/links.yaml names it."""

    link: Annotated[Text, AfterValidator(_known_link)] = Field(description="a kind of device or link")
    count: Annotated[int, Field(ge=1, le=100_000)] = Field(1, description="how many work side by side")


class ClaimTable(_Model):
    """Figures of one kind."""

    title: Text = Field("figures", description="a name for the table")
    unit: Text = Field(description="unit of the figures, such as s, 1/s, MB/s")
    better: Literal["lower", "higher"] = Field(description="lower or higher")
    shows: Shows | None = Field(None, description="what the figures are")
    rows: Mapping[Text, ClaimRow] = Field(min_length=1, max_length=1000, description="configuration: figure")
    derived: tuple[Derived, ...] = Field((), max_length=1000, description="what the source says of two rows")
    headlines: tuple[Headline, ...] = Field((), max_length=100, description="numbers that stand for several rows")
    mentions: tuple[Mention, ...] = Field((), max_length=1000, description="rows that the source's text mentions")
    stated_rows: Annotated[int, Field(ge=0, le=10**6)] | None = Field(
        None, description="how many rows the source's text says there are"
    )
    whole: PrintedFigure | None = Field(None, description="what all rows are shares of, and must add to: 100")
    tool: MeasuringTool | None = Field(None, description="the program that measured")
    through: Through | None = Field(None, description="the device or link that limits it")
    block: Size | None = Field(None, description="bytes of an operation, such as 4KiB")
    data: Size | None = Field(None, description="bytes that are read or written again and again")
    metric: Annotated[Text, AfterValidator(_pattern)] | None = Field(
        None, description="a regular expression: vmtax's metrics of the same kind"
    )
    remark: Remark | None = Field(None, description="what to know beside vmtax's own figures")

    @model_validator(mode="after")
    def _rows_exist(self) -> ClaimTable:
        problems: list[Problem] = []
        for number, one in enumerate(self.derived):
            problems += self._pair_problems(("derived", number), one.of, one.base, one.word)
        for place, headline in enumerate(self.headlines):
            if headline.word == "scaled":
                problems.append((("headlines", place, "word"), "must be about two rows, not scaled"))
            for number, pair in enumerate(headline.over):
                problems += self._pair_problems(("headlines", place, "over", number), pair.of, pair.base, headline.word)
        for number, mention in enumerate(self.mentions):
            problems += self._row_problems(("mentions", number, "row"), mention.row)
        raise_problems(problems)
        return self

    def _pair_problems(self, at: Place, of: str, base: str | None, word: Word) -> Iterator[Problem]:
        for key, row in (("of", of), ("base", base)):
            if row is None:
                continue
            yield from self._row_problems((*at, key), row)
            if row in self.rows and word not in ("difference", "scaled") and self.rows[row].figure.low <= 0:
                yield (*at, key), f"row {show(row)} is not above 0, so nothing can be a share or a multiple of it"

    def _row_problems(self, at: Place, row: str) -> Iterator[Problem]:
        if row not in self.rows:
            yield at, unknown("row", row, self.rows)

    @property
    def is_time(self) -> bool:
        """Whether the speed is the inverse of the figure."""
        return self.better == "lower"

    def has_ratio(self, of: str, base: str) -> bool:
        """Whether both figures are above 0, so that one can be a share or a multiple of the other."""
        return min(self.rows[of].figure.low, self.rows[base].figure.low) > 0

    def recomputed(self, of: str, base: str | None, word: Word, scale: PrintedNumber | None = None) -> Recomputed:
        """A comparison of two rows."""
        one = self.rows[of].figure
        two = self.rows[base].figure if base else one
        return recomputed(word, one, two, is_time=self.is_time, scale=scale.value if scale else 1)

    def setup_of(self, row: str) -> str:
        """The name of a row's set-up, whether there is one or not."""
        return self.rows[row].setup or row


class _About(_Model):
    source: Text = Field(description="who published it, where")
    year: Annotated[int, AfterValidator(_plausible)] | None = Field(description="the year; null: not known")
    url: Text | None = Field(None, description="where to read it")
    lacks: tuple[Lacks, ...] = Field((), description="what the source does not say: n, method, source, unit")
    n: Annotated[int, Field(ge=1, le=10**9)] | None = Field(None, description="runs behind each figure, if it says so")
    setup: Mapping[Text, Mapping[Text, Text]] = Field({}, description="configuration: {memory: 24 GB, kernel: …}")
    varied: tuple[Text, ...] = Field((), description="keys of the entries of `setup` that are varied on purpose")
    plan: Text | None = Field(None, description="the plan of vmtax that repeats the experiment")
    scaled: tuple[Text, ...] = Field((), description="how that plan differs from the source")


class PublishedClaim(_About):
    """A publication: its tables and its set-ups."""

    tables: tuple[ClaimTable, ...] = Field(max_length=100, description="tables; none: only set-ups are compared")

    @model_validator(mode="after")
    def _setups_exist(self) -> PublishedClaim:
        problems: list[Problem] = []
        for place, table in enumerate(self.tables):
            named: list[tuple[Place, str | None]] = [
                (("rows", key, "setup"), row.setup) for key, row in table.rows.items()
            ]
            named += [(("mentions", number, "setup"), one.setup) for number, one in enumerate(table.mentions)]
            problems += [
                (("tables", place, *at), unknown("entry of `setup`", setup, self.setup))
                for at, setup in named
                if setup is not None and setup not in self.setup
            ]
        if not (self.tables or len(self.setup) > 1 or self.lacks):
            text = "without a table there is nothing to check: give two entries of `setup`, or what the source `lacks`"
            problems.append((("tables",), text))
        raise_problems(problems)
        return self


class OneTable(_About, ClaimTable):
    """A file with one table, whose keys are at the top."""


def load(name_or_path: str) -> PublishedClaim:
    """A claim that comes with vmtax, by its name, or a YAML file by its path. Raises PlanError if there is none or it
    is wrong.
    """
    text, source = plan_text(name_or_path, CLAIM)
    return parse(text, source)


def parse(text: str, source: str = "claim") -> PublishedClaim:
    """A claim; `source` is the file's name in messages. Raises PlanError for anything else."""
    document = read(text, source, CLAIM)
    model = PublishedClaim if "tables" in document.data else OneTable
    try:
        found = model.model_validate(document.data)
        return found if isinstance(found, PublishedClaim) else _with_one_table(found)
    except ValidationError as error:
        raise PlanError(document.lines(_at_the_top(problems_of(error, model), model))) from None


def _with_one_table(found: OneTable) -> PublishedClaim:
    def part(model: type[BaseModel]) -> dict[str, Any]:
        return {name: getattr(found, name) for name in model.model_fields if name in found.model_fields_set}

    return PublishedClaim(**part(_About), tables=(ClaimTable(**part(ClaimTable)),))


def _at_the_top(problems: Iterator[Problem], model: type[BaseModel]) -> Iterator[Problem]:
    """Places in a file with one table: its keys are not below `tables`."""
    for place, text in problems:
        inside = model is OneTable and place[:2] == ("tables", 0)
        yield (place[2:] if inside else place), text
