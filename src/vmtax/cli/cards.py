"""Network cards on the command line: of a wire to a peer, or on the way to a second host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from vmtax.cli.app import BadUse

if TYPE_CHECKING:
    from vmtax.cli.measuring import Work
    from vmtax.testbed.session import Destination, Wire


def with_cards(work: Work, given: Mapping[str, str | None], interleave_with: str | None) -> Work:
    """Add the wire or the second host that the command line names. `given`: its values, by option without dashes."""
    card, peer, peer_card = given["card"], given["peer"], given["peer-card"]
    clash = {"peer": peer, "peer-card": peer_card, "interleave-with": interleave_with}
    contrary = [f"--{name}" for name, value in clash.items() if value]
    to = destination_of(work.plan.host, given["destination"], card, given["destination-card"], contrary)
    return work.to(to) if to else work.over(wire(card, peer, peer_card, interleave_with))


def wire(card: str | None, peer: str | None, peer_card: str | None, interleave_with: str | None) -> Wire | None:
    """The wire that the command line names, or none."""
    from vmtax.design.interleaved import is_host
    from vmtax.testbed.session import Wire

    given = {"--card": card, "--peer": peer, "--peer-card": peer_card}
    named = [option for option, value in given.items() if value is not None]
    if not named:
        return None
    if card is None or peer is None or peer_card is None:
        raise BadUse(
            f"{' and '.join(named)}: a wire takes --card and --peer-card, the cards at its ends, and --peer, where the"
            " far one is"
        )
    _check_ends("--peer", peer, {"--card": card, "--peer-card": peer_card})
    if interleave_with is not None and is_host(interleave_with):
        raise BadUse(f"--peer: the wire leads from one host, and --interleave-with {interleave_with} is another")
    return Wire(card, peer, peer_card)


def destination_of(
    plan_host: str, to: str | None, card: str | None, far_card: str | None, others: Sequence[str]
) -> Destination | None:
    """Where guests are migrated to, according to the command line; None: to another QEMU of their host.

    others: other options that were given and contradict it
    """
    from vmtax.testbed.session import Destination

    if to is None and far_card is None:
        return None
    if to is None or card is None or far_card is None:
        raise BadUse(
            "--destination takes --card and --destination-card, a card of the host under test and one of the"
            " destination, which lie on one network"
        )
    _check_ends("--destination", to, {"--card": card, "--destination-card": far_card})
    if others:
        raise BadUse(f"--destination: a guest moves between two hosts; leave out {' '.join(others)}")
    if to == plan_host:
        raise BadUse(
            f"--destination {to}: is the plan's own host; without it a guest moves to another QEMU of its host"
        )
    return Destination(to, card, far_card)


def _check_ends(option: str, host: str, cards: Mapping[str, str]) -> None:
    """Raises BadUse if the host, or a card named by its option, has an invalid name."""
    from vmtax.plan import rules

    try:
        rules.host(host)
    except ValueError as error:
        raise BadUse(f"{option}: {error}") from error
    for each, name in cards.items():
        if not re.fullmatch(r"[^\s/:]{1,15}", name) or name in (".", ".."):
            raise BadUse(f"{each} {name!r}: no network card can be called that; `ip link` lists those that are there")
