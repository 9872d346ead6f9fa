"""R7 and R12: what the program that measured cannot show, and options that do nothing; facts/tools.yaml."""

from __future__ import annotations

import contextlib
import re
from collections.abc import Iterator, Mapping, Sequence

from vmtax.claims.finding import RuleFinding, over_tables, place
from vmtax.claims.known import Cached, Duration, IdleOption, tools
from vmtax.claims.schema import ClaimTable, MeasuringTool, PublishedClaim
from vmtax.core.units import as_size, parse_bytes


def check_duration(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """R7. Wrong if a run time is shown by a program that ends after a time."""
    return over_tables(claim, _durations)


def check_effect(claim: PublishedClaim) -> Sequence[RuleFinding] | None:
    """R12. Doubtful if an option has no effect beside the others, or if data smaller than memory goes through the page
    cache.
    """
    return over_tables(claim, lambda table: _effects(claim, table))


def _durations(table: ClaimTable) -> list[RuleFinding] | None:
    if table.tool is None or table.shows != "run time":
        return None
    return [
        RuleFinding("R7", "wrong", place(table), _ends(fact)) for fact in tools().durations if _lasts(fact, table.tool)
    ][:1]


def _ends(fact: Duration) -> str:
    test = f"{fact.tool} {fact.test}" if fact.test else fact.tool
    by = f"after {fact.seconds:g} s unless {fact.by} says otherwise" if fact.seconds else f"after the time of {fact.by}"
    return f"{test} ends {by}, whatever the speed, so its run time cannot differ ({fact.why})"


def _lasts(fact: Duration, tool: MeasuringTool) -> bool:
    return (
        _is_about(fact, tool)
        and _version(tool.version or "") >= _version(fact.since)
        and all(name in tool.options for name in fact.needs)
        and not any(tool.options.get(name) == value for name, value in fact.unless.items())
    )


def _version(text: str) -> tuple[int, ...]:
    """Numbers of a version; one that is not stated is the newest."""
    return tuple(map(int, re.findall(r"\d+", text)[:4])) or (10**6,)


def _effects(claim: PublishedClaim, table: ClaimTable) -> list[RuleFinding] | None:
    if table.tool is None or not (table.tool.options or table.data):
        return None
    idle = [_idle(table, fact) for fact in tools().idle_options if _does_nothing(fact, table.tool)]
    return [*idle, *_in_cache(claim, table, table.tool)]


def _idle(table: ClaimTable, fact: IdleOption) -> RuleFinding:
    options = table.tool.options if table.tool else {}
    beside = " ".join(f"{name}={options[name]}" if name in options else f"without {name}" for name in fact.beside)
    text = f"{fact.option}={options[fact.option]} has no effect beside {beside} ({fact.why})"
    return RuleFinding("R12", "doubtful", place(table), text)


def _does_nothing(fact: IdleOption, tool: MeasuringTool) -> bool:
    if not _is_about(fact, tool) or fact.option not in tool.options or not _are(fact.beside, tool.options):
        return False
    if fact.above is None:
        return True
    with contextlib.suppress(ValueError):
        return float(tool.options[fact.option]) > fact.above
    return False


def _in_cache(claim: PublishedClaim, table: ClaimTable, tool: MeasuringTool) -> Iterator[RuleFinding]:
    for fact in tools().cached:
        if table.data is None or not (_is_about(fact, tool) and _are(fact.beside, tool.options)):
            continue
        for name in dict.fromkeys(map(table.setup_of, table.rows)):
            memory = _memory(claim.setup.get(name, {}))
            if memory is not None and table.data <= memory:
                text = f"{as_size(table.data)} fit in the memory of {name}, and go through its cache ({fact.why})"
                yield RuleFinding("R12", "doubtful", place(table), text)


def _memory(setup: Mapping[str, str]) -> int | None:
    """Bytes; None: not stated, or no size."""
    with contextlib.suppress(KeyError, ValueError):
        return parse_bytes(setup["memory"])
    return None


def _is_about(fact: Duration | IdleOption | Cached, tool: MeasuringTool) -> bool:
    return fact.tool.casefold() == tool.name.casefold() and fact.test in (None, tool.test)


def _are(beside: Mapping[str, Sequence[str]], options: Mapping[str, str]) -> bool:
    return all(options.get(name, "") in values for name, values in beside.items())
