"""What `vmtax history` does: the costs of one host from run to run."""

from __future__ import annotations

from collections.abc import Sequence

from vmtax.analysis.many.choose import by_machine
from vmtax.analysis.many.costs import RunCosts
from vmtax.cli.app import BadUse, warn
from vmtax.cli.asked_results import ManyOptions
from vmtax.cli.files import file_of
from vmtax.cli.many import costs_asked, show_history, without_names
from vmtax.core.units import count_of
from vmtax.report.render.formats import find_history


def history(plan: str, host: str, format: str, asked: ManyOptions) -> None:
    """`host`: "" for that of the newest run."""
    file, format = file_of(asked.output), "json" if asked.json else format
    find_history(format)  # before anything is read
    runs = without_names(_of_host(_machines(plan, asked, host), host), asked)
    show_history(runs, asked.label, format, file, full=asked.full)


def _machines(plan: str, asked: ManyOptions, host: str) -> Sequence[Sequence[RunCosts]]:
    """The runs of each machine, that of the newest run first."""
    runs = costs_asked(plan, asked)
    machines = [*by_machine(runs).values()]
    others = len(machines) - 1
    if others and not host:
        warn(
            f"{count_of(others, 'other host')} also ran {runs[0].plan}: --host shows another one,"
            " `vmtax fleet show` all of them"
        )
    return machines


def _of_host(machines: Sequence[Sequence[RunCosts]], host: str) -> Sequence[RunCosts]:
    found = [runs for runs in machines if not host or any(host in (run.host, run.host_name) for run in runs)]
    if not found:
        names = list(dict.fromkeys(runs[0].host_name for runs in machines))
        more = f" and {len(names) - 10} more" if names[10:] else ""
        raise BadUse(f"no such run on host {host!r}; there are: {', '.join(names[:10])}{more}")
    if host and len(found) > 1:
        warn(f"{len(found)} machines are called {host}: this is that of the newest run; name another by its address")
    return found[0]
