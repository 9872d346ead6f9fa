"""Where a workload runs: a machine, the way into the common userland on it, its disk and its network."""

from __future__ import annotations

from dataclasses import dataclass

from vmtax.core.machines import Machine


@dataclass(frozen=True, slots=True)
class Link:
    """How a client reaches its server: it is on the layer, or, where the layer cannot call out, at the peer."""

    machine: Machine  # where the client runs
    prefix: tuple[str, ...]  # enters the userland there
    address: str  # the server's
    port: int
    at_peer: bool = False  # True: the server is on the layer and the client is the peer (user networking)


@dataclass(frozen=True, slots=True)
class Site:
    """One booted layer, ready to run workloads."""

    machine: Machine
    layer: str  # "host", "vm" or "nested"
    vcpus: int
    prefix: tuple[str, ...]  # enters the image: bubblewrap on a host, nothing in a guest
    disk: str | None = None  # file or block device under test, as named inside the userland
    fresh_disk: str | None = None  # one more that was never written, made for this boot
    kernel_pack: tuple[str, ...] | None = None  # enters its userland, less the "--"; None: no kernel is built here
    link: Link | None = None  # to the network peer; None: the network is not measured here
    lead: int = 0  # seconds of the same work before and after what counts: machines at once do not start as one


def link_of(site: Site) -> Link:
    """Its way to the peer; raises ValueError if it has none."""
    if site.link is None:
        raise ValueError(f"{site.machine.path} has no network peer")
    return site.link
