"""Networks under test: a private segment with a peer on it."""

from vmtax.network.segment import END_ADDRESS, PEER_ADDRESS, Segment, guest_address

__all__ = ["END_ADDRESS", "PEER_ADDRESS", "Segment", "guest_address"]
