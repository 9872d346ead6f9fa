"""Networks under test: a private segment with a peer on it."""

from vmtax.network.segment import GUEST_ADDRESS, PEER_ADDRESS, Segment

__all__ = ["GUEST_ADDRESS", "PEER_ADDRESS", "Segment"]
