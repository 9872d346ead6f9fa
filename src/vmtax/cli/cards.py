"""Network cards on the command line: of a wire to a peer, or on the way to a second host."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

from vmtax.cli.app import BadUse
from vmtax.cli.asked import CardOptions, Versions
from vmtax.cli.option_groups import given
from vmtax.cli.work import RunWork
from vmtax.design.interleaved import is_host
from vmtax.plan import rules
from vmtax.testbed.session.session import Destination, Wire


def with_cards(work: RunWork, asked: CardOptions, versions: Versions) -> RunWork:
    """Add the wire or the second host that the command line names."""
    other = versions.interleave_with
    contrary = given(CardOptions(peer=asked.peer, peer_card=asked.peer_card), Versions(interleave_with=other))
    to = destination_of(work.plan.host, asked, contrary)
    return work.to(to) if to else work.over(wire(asked, other))


def wire(asked: CardOptions, interleave_with: str | None) -> Wire | None:
    """The wire that the command line names, or none."""
    card, peer, peer_card = asked.card, asked.peer, asked.peer_card
    ends = {"--card": card, "--peer": peer, "--peer-card": peer_card}
    named = [option for option, value in ends.items() if value is not None]
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


def destination_of(plan_host: str, asked: CardOptions, others: Sequence[str]) -> Destination | None:
    """Where guests are migrated to, according to the command line; None: to another QEMU of their host.

    others: other options that were given and contradict it
    """
    to, card, far_card = asked.destination, asked.card, asked.destination_card
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
    try:
        rules.host(host)
    except ValueError as error:
        raise BadUse(f"{option}: {error}") from error
    for each, name in cards.items():
        if not re.fullmatch(r"[^\s/:]{1,15}", name) or name in (".", ".."):
            raise BadUse(f"{each} {name!r}: no network card can be called that; `ip link` lists those that are there")
