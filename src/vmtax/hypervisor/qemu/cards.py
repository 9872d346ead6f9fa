"""A guest's network cards as QEMU takes them. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from vmtax.hypervisor.spec import Card, Nic, Passed, Tap

# What a virtio card does for its guest: in what it sends (csum, host_*) and in what it receives (guest_*).
OFFLOADS = (
    *("csum", "gso", "host_tso4", "host_tso6", "host_ecn", "host_ufo"),
    *("guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"),
)

FIRST_DESCRIPTOR = 3  # behind standard input, output and error


def handed_over(cards: Sequence[Card]) -> tuple[str, ...]:
    """The command in front of QEMU's own that opens the taps which are there already; `_nic` counts them alike."""
    taps = (card.behind for card in cards if isinstance(card, Nic) and isinstance(card.behind, Tap))
    devices = [tap.device for tap in taps if tap.device]
    # Constant text but for the number; the path stays an argument.
    opened = ((f'exec {number}<>"$1"; shift; exec "$@"', path) for number, path in enumerate(devices, FIRST_DESCRIPTOR))
    return tuple(word for text, path in opened for word in ("sh", "-c", text, "sh", path))


def card_arguments(cards: Sequence[Card]) -> tuple[str, ...]:
    """The cards alone, with what they take beside them: a back end, a PCI Express port."""
    words: list[str] = []
    numbers = itertools.count(1), itertools.count(FIRST_DESCRIPTOR)
    for card in cards:
        words += ["-device", f"vfio-pci,host={card.address}"] if isinstance(card, Passed) else _nic(card, *numbers)
    return tuple(words)


def forward(port: int, guest: str = "") -> str:
    """An option of a network that QEMU plays: the parent's loopback reaches that TCP port of the guest.

    The kernel picks the port there, which no other process can take in between, and QMP reports it.
    """
    return f",hostfwd=tcp:127.0.0.1:0-{guest}:{port}"


def _nic(card: Nic, slots: Iterator[int], descriptors: Iterator[int]) -> list[str]:
    """`slots`: numbers for PCI Express ports; `descriptors`: of the files that QEMU is handed open."""
    behind, options = card.behind, ""
    if isinstance(behind, Tap):
        vhost = ",vhost=on" if behind.vhost else ""
        if behind.queues > 1:
            vhost += f",queues={behind.queues}"
            # A vector for each queue in each direction, one for changes of the configuration, one for control.
            options = f",mq=on,vectors={2 * behind.queues + 2}"
        tap = f"fd={next(descriptors)}" if behind.device else f"ifname={behind.interface},script=no,downscript=no"
        netdev = f"tap,id={card.name},{tap}{vhost}"
    else:
        ports = "".join(forward(port, behind.guest) for port in behind.ports)
        restrict = ",restrict=on" if behind.restricted else ""
        netdev = f"user,id={card.name}{restrict},net={behind.subnet},host={behind.host}{ports}"
    if not card.offloads:
        options += "".join(f",{each}=off" for each in OFFLOADS)
    port, bus, primary = [], "", []
    if card.has_port:
        number, port_name = next(slots), f"{card.name}-port"
        port = ["-device", f"pcie-root-port,id={port_name},chassis={number},slot={number}"]
        bus = f",bus={port_name}" if card.own_port else ""
    if card.stands_by:
        options += f",id={_standby_id(card)},failover=on"
    if card.primary is not None:
        # QEMU keeps it back until the guest has said that it can have both, and plugs it into its port then.
        driver, *named = (f"{name}={value}" for name, value in primary_options(card, card.primary).items())
        primary = ["-device", ",".join((driver.partition("=")[2], *named))]
    device = f"{card.model},netdev={card.name}{bus},romfile=,mac={card.mac}{options}"
    return ["-netdev", netdev, *port, "-device", device, *primary]


def primary_options(card: Nic, device: Passed) -> dict[str, str]:
    """A device for which that card stands by, as QEMU takes it; the driver first."""
    return {
        **{"driver": "vfio-pci", "host": device.address, "id": f"{card.name}-primary", "bus": f"{card.name}-port"},
        "failover_pair_id": _standby_id(card),
    }


def _standby_id(card: Nic) -> str:
    return f"{card.name}-standby"
