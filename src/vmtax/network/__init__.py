"""Networks under test: a private segment with a peer on it."""

from vmtax.network.segment import END_ADDRESS, GUEST_ADDRESS, PEER_ADDRESS, Segment

__all__ = ["END_ADDRESS", "GUEST_ADDRESS", "PEER_ADDRESS", "Segment"]
