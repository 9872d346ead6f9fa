"""Workloads over a link to the network peer, and those that measure its throughput, inward and outward."""

from __future__ import annotations

from vmtax.core.machines import Machine
from vmtax.core.records import Metric
from vmtax.workload.base import LEAST_OF_RATE, Command, P
from vmtax.workload.output import BadOutput
from vmtax.workload.site import Site, link_of

WAYS = {"tcp-in": "inbound", "tcp-out": "outbound", "udp-in": "inbound UDP", "udp-out": "outbound UDP"}  # of cases


class Linked(Command[P]):
    """Its command runs at the layer's end of the link."""

    def seat(self, site: Site) -> tuple[Machine, tuple[str, ...]]:
        link = link_of(site)
        return link.machine, link.prefix


class Throughput(Linked[P]):
    """Its cases are WAYS."""

    @classmethod
    def phrase(cls, metric: Metric) -> str:
        way = WAYS.get(metric.case)
        if way and metric.measure == "bits_per_second":
            return f"{way} network throughput"
        words = cls.measure(metric).phrase
        return f"{words}, {way}" if way and words else super().phrase(metric)

    @classmethod
    def refuse_full_load(cls, case: str, bits: float, asked: int | None, late: float = 0.0) -> None:
        """Raises BadOutput if fewer bits per second were reached than were asked for, in Mbit/s.

        late: bits per second that may still be in transit at the end
        """
        if asked is not None and bits < LEAST_OF_RATE * asked * 1e6 - late:
            raise BadOutput(
                f"{case}: {bits / 1e6:.3g} Mbit/s were reached of the {asked} that were asked for, so this is full"
                f" load; lower workloads.{cls.name}.rate"
            )
