"""Networks under test: a private segment with a peer on it.

No address, route or firewall rule of the machine is touched; all interfaces vanish with the run.
"""

from vmtax.network.segment import END_ADDRESS, FAR_ADDRESS, PEER_ADDRESS, Segment, guest_address

__all__ = ["END_ADDRESS", "FAR_ADDRESS", "PEER_ADDRESS", "Segment", "guest_address"]
