"""QEMU's arguments for a guest's network cards. Pure."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from vmtax.hypervisor.spec import Card, Nic, Passed, Tap

# Offloads of a virtio card: for what the guest sends (csum, host_*) and for what it receives (guest_*).
OFFLOADS = (
    *("csum", "gso", "host_tso4", "host_tso6", "host_ecn", "host_ufo"),
    *("guest_csum", "guest_tso4", "guest_tso6", "guest_ecn", "guest_ufo"),
)

FIRST_DESCRIPTOR = 3  # after standard input, output and error


def handed_over(cards: Sequence[Card]) -> tuple[str, ...]:
    """Command prefix that opens existing taps for QEMU; `_nic` numbers them in the same way."""
    taps = (card.behind for card in cards if isinstance(card, Nic) and isinstance(card.behind, Tap))
    devices = [tap.device for tap in taps if tap.device]
    # Constant text except for the number; the path stays an argument.
    opened = ((f'exec {number}<>"$1"; shift; exec "$@"', path) for number, path in enumerate(devices, FIRST_DESCRIPTOR))
    return tuple(word for text, path in opened for word in ("sh", "-c", text, "sh", path))


def card_arguments(cards: Sequence[Card]) -> tuple[str, ...]:
    """Arguments for the cards only, with their back ends and PCI Express ports."""
    words: list[str] = []
    numbers = itertools.count(1), itertools.count(FIRST_DESCRIPTOR)
    for card in cards:
        words += ["-device", f"vfio-pci,host={card.address}"] if isinstance(card, Passed) else _nic(card, *numbers)
    return tuple(words)


def forward(port: int, guest: str = "") -> str:
    """Option of QEMU's user networking that lets the parent's loopback reach that TCP port of the guest.

    The kernel chooses the port on the parent, so no other process can take it in between; QMP reports it.
    """
    return f",hostfwd=tcp:127.0.0.1:0-{guest}:{port}"


def _nic(card: Nic, slots: Iterator[int], descriptors: Iterator[int]) -> list[str]:
    """`slots`: numbers for PCI Express ports; `descriptors`: numbers of files that QEMU inherits open."""
    behind, options = card.behind, ""
    if isinstance(behind, Tap):
        vhost = ",vhost=on" if behind.vhost else ""
        if behind.queues > 1:
            vhost += f",queues={behind.queues}"
            # One vector per queue and direction, one for configuration changes, one for the control queue.
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
        # QEMU holds the device back until the guest supports failover, and then plugs it into its port.
        driver, *named = (f"{name}={value}" for name, value in primary_options(card, card.primary).items())
        primary = ["-device", ",".join((driver.partition("=")[2], *named))]
    device = f"{card.model},netdev={card.name}{bus},romfile=,mac={card.mac}{options}"
    return ["-netdev", netdev, *port, "-device", device, *primary]


def primary_options(card: Nic, device: Passed) -> dict[str, str]:
    """QEMU's options for a device for which that card stands by; the driver comes first."""
    return {
        **{"driver": "vfio-pci", "host": device.address, "id": f"{card.name}-primary", "bus": f"{card.name}-port"},
        "failover_pair_id": _standby_id(card),
    }


def _standby_id(card: Nic) -> str:
    return f"{card.name}-standby"
