"""The plan: what to measure, where and how surely. YAML text → validated records; every error names its line."""

from __future__ import annotations

import functools
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Annotated, Any, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    ValidationInfo,
    field_validator,
    model_validator,
)

from vmtax import stats
from vmtax.core.layers import GUESTS, LAYERS, USUAL
from vmtax.core.quantities import FROM_YAML, Quantity
from vmtax.core.records import Treatment
from vmtax.core.units import as_duration, as_size, parse_bytes, parse_duration, parse_percent
from vmtax.design.iterations import PILOT_ITERATIONS, PILOT_ROUNDS
from vmtax.design.size import LEAST_MEMORY, MOST_MEMORY, MOST_VCPUS, VCPUS
from vmtax.design.stopping import Stopping
from vmtax.design.treatments import Expansion, Space, expand, moved_defaults, repeat
from vmtax.plan import rules
from vmtax.plan.errors import PlanError, problems_of, raise_problems
from vmtax.plan.file import describe, plan_text
from vmtax.plan.names import builtin_plans
from vmtax.plan.yaml import YamlDocument, read

if TYPE_CHECKING:
    from vmtax.workload.base import Workload

__all__ = [
    "Choice",
    "GuestSize",
    "Plan",
    "PlanError",
    "Rounds",
    "as_written",
    "builtin_plans",
    "describe",
    "from_data",
    "load",
    "parse",
]

_MIB = 2**20
_PRECISION = 0.02  # if the plan asks for no other

Whole = Annotated[int, Field(strict=True)]
Name = Annotated[str, Field(strict=True)]
Layer = Annotated[Name, rules.one_of("layer", LAYERS)]
Levels = tuple[Name, ...]
Memory = Annotated[int, Quantity(parse_bytes, LEAST_MEMORY, MOST_MEMORY, "1GiB", bare=True)]
Iterations = Annotated[
    Annotated[Whole, Field(ge=1, le=1000)] | Literal["auto"],
    BeforeValidator(rules.iterations),
]
Margin = Annotated[float, Quantity(parse_percent, "0.01%", "50%", "3%")]
Precision = Annotated[float | None, Quantity(parse_percent, "0.01%", "50%", "2%", none=True)]
Writes = Annotated[int | None, Quantity(parse_bytes, "64MiB", "1024TiB", "500GiB", none=True)]
Budget = Annotated[float | None, Quantity(parse_duration, "1s", "30d", "20m", none=True)]


class _Model(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)


class GuestSize(_Model):
    """The size of a guest; the host layer is limited to the same number of CPUs."""

    vcpus: Whole = Field(2, ge=1, le=MOST_VCPUS, description="CPUs of a guest, and of the host layer")
    memory: Memory = Field(
        1024 * _MIB,
        description="memory of a guest; a bare number is in bytes",
        examples=["1GiB"],
    )


class Rounds(_Model):
    """How often each treatment runs."""

    min: Whole = Field(7, ge=1, le=10_000, description="rounds before the run may end because it is precise enough")
    max: Whole = Field(60, ge=1, le=10_000, description="rounds after which it ends in any case; not below min")

    @model_validator(mode="after")
    def _ordered(self) -> Rounds:
        if self.max < self.min:
            raise ValueError(f"min must not be more than max, but min is {self.min} and max is {self.max}")
        return self


class Decide(_Model):
    """A question with the answer yes or no, asked about every primary contrast."""

    worse_than: Margin = Field(
        description="the question: is it worse by more than this, of rate lost or time added?", examples=["3%"]
    )


class PlanCombination(_Model):
    """An entry of the plan's own list of treatments."""

    name: Annotated[Name, AfterValidator(rules.label)] | None = Field(
        None, description="what its configurations are called, in place of their levels"
    )
    levels: Annotated[dict[str, Levels], BeforeValidator(rules.level_lists)] = Field(
        description="factor: level, or a list of levels"
    )


class Choice(_Model):
    """A workload and the parameters that the plan sets."""

    name: Name = Field(description="the workload's name")
    parameters: dict[str, Any] = Field(default_factory=dict, description="the parameters that the plan sets")


class Plan(_Model):
    """One experiment as requested. The fields are checked in this order, each one against those before it."""

    name: Annotated[Name, AfterValidator(rules.plan_name)] = Field(
        description="begins the ids of its runs: 1 to 64 letters, digits, `.`, `_` or `-`"
    )
    host: Annotated[Name, AfterValidator(rules.host)] = Field(
        "local", description="where to measure: `local`, `ssh://[user@]host[:port]` or `lab[:NAME]`"
    )
    guest: GuestSize = Field(
        GuestSize(),
        description="the size of a guest; host and containers get as many CPUs, and containers as much memory",
    )
    layers: tuple[Layer, ...] = Field(
        USUAL, min_length=1, max_length=len(LAYERS), description="what is compared: `host`, `container`, `vm`, `nested`"
    )
    factors: Annotated[dict[str, Levels], BeforeValidator(rules.level_lists)] = Field(
        {}, validate_default=True, description="factor: list of levels, the first one the baseline; see below"
    )
    design: Literal["full", "one-at-a-time"] = Field(
        "full",
        description="`full`: every combination of the factors' levels; `one-at-a-time`: the first levels, and with"
        " one other level each",
    )
    combinations: tuple[Annotated[PlanCombination, BeforeValidator(rules.combination)], ...] = Field(
        (),
        validate_default=True,
        description="a list of combinations instead of all: each entry names levels, as"
        " `{name: lvm, disk.volume: lvm, disk.cache: [none, writeback]}`, and is combined with `factors`",
    )
    exclude: tuple[Annotated[dict[str, Levels], BeforeValidator(rules.level_lists)], ...] = Field(
        (),
        validate_default=True,
        description="what to leave out, such as `{disk.cache: unsafe, layers: nested}`",
    )
    workloads: tuple[Annotated[Choice, BeforeValidator(rules.choice)], ...] = Field(
        min_length=1, max_length=100, description="what is run: a name, or `name: {parameter: value}`; see below"
    )
    primary: tuple[Name, ...] = Field(
        (),
        validate_default=True,
        max_length=1000,
        description="metrics that decide when the run ends; by default the first of each workload",
    )
    decide: Decide | None = Field(None, description="a question; the run may end when it is answered")
    only_primary: bool = Field(
        False, strict=True, description="run only the cases with a primary metric; the A/A always does so"
    )
    give_ups: bool = Field(
        False,
        strict=True,
        description="before the first round, try what each way to keep a disk can do besides being fast: snapshots,"
        " migration, a full disk",
    )
    precision: Precision = Field(
        _PRECISION,
        description="half-width of the primary intervals at which the run may end; by default none with `decide`",
        examples=["2%"],
    )
    same_within: Margin = Field(
        0.02, description="a difference that does not matter in practice; it makes ties in rankings", examples=["2%"]
    )
    rounds: Rounds = Field(Rounds(), description="how often each configuration runs")
    iterations: Iterations = Field(
        1,
        description="how often each workload runs in each boot, which counts as one value in any case; `auto`:"
        f" planned from a pilot, the first {PILOT_ROUNDS} rounds with {PILOT_ITERATIONS} each, and without warm-up",
    )
    budget: Budget = Field(
        20 * 60.0, description="time that the rounds must fit, such as `20m` or `1h30m`", examples=["20m"]
    )
    max_writes: Writes = Field(
        None,
        description="the most that a run writes to the disks under test: it ends before a round that may exceed that."
        " Disks that are prepared again, because the run is resumed or its host rebooted, are not counted",
        examples=["500GiB"],
        exclude_if=lambda value: value is None,  # stored plans are older
    )
    seed: Whole | None = Field(
        None, ge=0, lt=2**63, description="seed of the order within rounds; by default a new one for each run"
    )

    @property
    def space(self) -> Space:
        """The treatments that its factors, design and combinations describe."""
        return rules.space(self.factors, self.design, self.combinations, self.guest)

    def expansion(self) -> Expansion:
        """Its factors, expanded on its layers."""
        return expand(self.layers, self.space, self.exclude)

    @property
    def moved_defaults(self) -> list[str]:
        """A line for each factor that it does not name and that cannot keep its default in the guests that it boots."""
        return moved_defaults(self.space) if self.has_guests else []

    @property
    def has_guests(self) -> bool:
        """Whether any of its layers boots guests from the root image."""
        return any(layer in GUESTS for layer in self.layers)

    def treatments(self) -> tuple[list[Treatment], list[str]]:
        """What is compared, and one line for each combination left out."""
        found = self.expansion()
        return list(found.kept), list(found.left_out)

    def entries(self, without: Collection[str] = ()) -> list[Treatment]:
        """The treatments of each round: what is compared, and one guest treatment again, the A/A.

        without: names of treatments that are impossible on the host under test
        """
        kept = [treatment for treatment in self.treatments()[0] if treatment.name not in without]
        again = repeat(kept) if self.primary else None
        return [*kept, *([again] if again else [])]

    def cases(self, workload: Workload[Any], treatment: Treatment) -> Sequence[str]:
        """The cases of a workload that this treatment runs: all, or only those that decide when the run stops."""
        if treatment.layer not in workload.layers:
            return ()
        cases = [case for case in workload.cases() if treatment.layer in workload.layers_of(case)]
        if treatment.repeats is None and not self.only_primary:
            return cases
        return [case for case in cases if any(m.name in self.primary for m in workload.reports(case))]

    def stopping(self) -> Stopping:
        """The rules for when a run is over."""
        return Stopping.of(self.model_dump(mode="json", include={"rounds", "precision", "decide"}))

    def build_workloads(self, *, emulated: bool = False) -> list[Workload[Any]]:
        """The workloads with their validated parameters, in the plan's order. `emulated`: some layer of the run is
        emulated.
        """
        return [rules.build(choice.name, choice.parameters, emulated) for choice in self.workloads]

    @model_validator(mode="before")
    @classmethod
    def _question_instead_of_precision(cls, data: Any) -> Any:
        if isinstance(data, dict) and data.get("decide") is not None:
            return {"precision": None, **data}
        return data

    @model_validator(mode="after")
    def _decidable(self) -> Plan:
        if self.decide is not None and self.rounds.max < (needed := stats.minimum_rounds(stats.ALPHA)):
            raise ValueError(f"decide takes rounds.max of {needed} or more, but max is {self.rounds.max}")
        return self

    @field_validator("layers")
    @classmethod
    def _each_layer_once(cls, layers: tuple[str, ...]) -> tuple[str, ...]:
        raise_problems(rules.repeated(("layers",), layers))
        return layers

    @field_validator("factors")
    @classmethod
    def _legal_factors(cls, factors: dict[str, Levels], info: ValidationInfo) -> dict[str, Levels]:
        raise_problems(rules.factor_problems(factors, info.data.get("layers", LAYERS)))
        return factors

    @field_validator("combinations")
    @classmethod
    def _legal_combinations(
        cls, entries: tuple[PlanCombination, ...], info: ValidationInfo
    ) -> tuple[PlanCombination, ...]:
        found = [(entry.name, entry.levels) for entry in entries]
        raise_problems(rules.combination_problems(found, info.data.get("factors", {})))
        if {"layers", "factors", "design"} <= info.data.keys():
            space = rules.space(info.data["factors"], info.data["design"], entries, info.data.get("guest", GuestSize()))
            raise_problems(rules.too_many(info.data["layers"], space))
        return entries

    @field_validator("exclude")
    @classmethod
    def _legal_excludes(
        cls, entries: tuple[dict[str, Levels], ...], info: ValidationInfo
    ) -> tuple[dict[str, Levels], ...]:
        raise_problems(rules.exclude_problems(entries))
        if {"layers", "factors", "design", "combinations"} <= info.data.keys():
            guest = info.data.get("guest", GuestSize())
            space = rules.space(info.data["factors"], info.data["design"], info.data["combinations"], guest)
            raise_problems(rules.nothing_left(info.data["layers"], space, entries))
        return entries

    @field_validator("workloads")
    @classmethod
    def _legal_workloads(cls, choices: tuple[Choice, ...], info: ValidationInfo) -> tuple[Choice, ...]:
        named = [(choice.name, choice.parameters) for choice in choices]
        guest, factors = info.data.get("guest", GuestSize()), info.data.get("factors", {})
        space = rules.space(factors, "full", info.data.get("combinations", ()), guest)
        least = min(map(int, space.levels_of(VCPUS, str(guest.vcpus))))
        raise_problems(rules.workload_problems(named, info.data.get("layers", LAYERS), least))
        raise_problems(rules.disk_problems(named))
        raise_problems(rules.order_problems(named))
        raise_problems(rules.count_problems(named, space))
        return choices

    @field_validator("primary")
    @classmethod
    def _legal_metrics(cls, primary: tuple[str, ...], info: ValidationInfo) -> tuple[str, ...]:
        workloads = [rules.build(choice.name, choice.parameters) for choice in info.data.get("workloads", ())]
        metrics = [[metric.name for metric in workload.metrics()] for workload in workloads if workload.compared]
        if workloads:
            raise_problems(rules.metric_problems(primary, [name for names in metrics for name in names]))
        return primary or tuple(names[0] for names in metrics if names)


def parse(text: str, source: str = "plan") -> Plan:
    """Parse a plan; `source` is the file's name in messages. Raises PlanError for anything else."""
    return _validated(read(text, source), FROM_YAML)


def from_data(data: Mapping[str, Any], source: str = "plan", options: Mapping[str, str] = MappingProxyType({})) -> Plan:
    """A plan from plain data, as returned by `plan.model_dump(mode="json")`, possibly with replaced fields. Raises
    PlanError.

    options: replaced field -> the option of the command line that replaced it, for messages
    """
    return _validated(YamlDocument(source, dict(data), options=options), {})


def load(name_or_path: str) -> Plan:
    """A built-in plan by its name, or a YAML file by its path, which names other files from its directory. Raises
    PlanError if there is none or it is wrong.
    """
    if name_or_path in builtin_plans():
        return _built_in(name_or_path)
    plan = parse(*plan_text(name_or_path))
    directory, types = Path(name_or_path).absolute().parent, rules.workload_types()
    located = {each.name: types[each.name].parameters_type.located for each in plan.workloads}
    choices = [
        each.model_copy(update={"parameters": located[each.name](each.parameters, directory)})
        for each in plan.workloads
    ]
    return plan.model_copy(update={"workloads": tuple(choices)})


@functools.cache
def _built_in(name: str) -> Plan:
    return parse(*plan_text(name))


def as_written(plan: Plan) -> dict[str, Any]:
    """The plan as a person would write it, with every default filled in: `load` of its YAML gives the same plan."""
    data: dict[str, Any] = plan.model_dump(mode="json", exclude={"seed"} if plan.seed is None else set())
    data["guest"]["memory"] = as_size(plan.guest.memory)
    data["precision"] = "none" if plan.precision is None else f"{plan.precision * 100:.10g}%"
    data["same_within"] = f"{plan.same_within * 100:.10g}%"
    if plan.decide is None:
        del data["decide"]
    else:
        data["decide"] = {"worse_than": f"{plan.decide.worse_than * 100:.10g}%"}
    data["budget"] = "none" if plan.budget is None else as_duration(plan.budget)
    if plan.max_writes is not None:
        data["max_writes"] = as_size(plan.max_writes)
    data["combinations"] = [
        {**({} if entry.name is None else {"name": entry.name}), **entry.model_dump(mode="json")["levels"]}
        for entry in plan.combinations
    ]
    data["workloads"] = [
        {workload.name: workload.parameters.model_dump(mode="json")} for workload in plan.build_workloads()
    ]
    return data


def _validated(document: YamlDocument, context: dict[str, str]) -> Plan:
    try:
        return Plan.model_validate(document.data, context=context)
    except ValidationError as error:
        raise PlanError(document.lines(problems_of(error, Plan))) from None
