"""The private network of a run: who has which address."""

from __future__ import annotations

from ipaddress import ip_address, ip_network

import pytest

from vmtax.network import PEER_ADDRESS
from vmtax.network.segment import BOTH_LENGTH, MOST_GUESTS, PREFIX_LENGTH, guest_address


@pytest.mark.parametrize("direct", [False, True])
def test_as_many_guests_as_may_be_have_addresses_of_their_own_beside_the_peers(direct: bool) -> None:
    length = BOTH_LENGTH if direct else PREFIX_LENGTH
    network = ip_network(f"{PEER_ADDRESS}/{length}", strict=False)
    found = {ip_address(guest_address(number, direct=direct)) for number in range(1, MOST_GUESTS + 1)}
    assert len(found) == MOST_GUESTS and ip_address(PEER_ADDRESS) not in found
    assert all(address in network for address in found) and network.broadcast_address not in found


@pytest.mark.parametrize("number", [-1, 0, MOST_GUESTS + 1])
def test_no_other_guest_has_one(number: int) -> None:
    with pytest.raises(ValueError, match=f"guest {number} of a segment for {MOST_GUESTS}"):
        guest_address(number)
