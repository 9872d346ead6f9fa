"""The option `--power-cut`: the power cut on the command line, and for which runs it is allowed."""

from __future__ import annotations

from dataclasses import replace

from vmtax.cli.app import BadUse
from vmtax.cli.asked import PowerOptions
from vmtax.cli.work import RunWork
from vmtax.core.units import parse_duration
from vmtax.testbed.session.power import BACK_WITHIN, PowerCut, one_state, why_not


def power_order(asked: PowerOptions) -> PowerCut | None:
    """The power cut that the command line describes; None: the host keeps its power."""
    command, back_within = asked.power_cut, asked.back_within
    if command is None:
        if back_within is not None:
            raise BadUse("--back-within is about a host whose power is cut: add --power-cut, or leave it out")
        return None
    try:
        seconds = BACK_WITHIN if back_within is None else parse_duration(back_within)
    except ValueError as error:
        raise BadUse(f"--back-within: {error}") from error
    try:
        return PowerCut.parse(command, seconds)
    except ValueError as error:
        raise BadUse(f"--power-cut: {error}") from error


def with_cuts(work: RunWork, order: PowerCut | None) -> RunWork:
    """The work with power cuts of the host, one state of a disk for each cut. Raises BadUse if that is impossible."""
    if order is None:
        return work
    testbed = work.options.testbed
    if problem := why_not(work.plan, testbed.target, testbed.interleave_with):
        raise BadUse(f"--power-cut: {problem}")
    return replace(work.on(replace(testbed, power_cut=order)), plan=one_state(work.plan))


def with_cuts_again(work: RunWork, order: PowerCut | None, *, yes: bool) -> RunWork:
    """A resumed run with the power-cut command given now. Raises BadUse if the run cuts no power, or if --yes is given
    without a command for one that does.
    """
    kept = work.options.testbed.power_cut
    if order is not None and kept is None:
        raise BadUse("--power-cut: the run that is resumed cuts no power: leave it out")
    if kept is not None and order is None and yes:
        raise BadUse(
            f"--yes does not agree to cut the power of {work.plan.host} again: give --power-cut COMMAND too, or leave"
            " out --yes"
        )
    return work if order is None else work.on(replace(work.options.testbed, power_cut=order))
