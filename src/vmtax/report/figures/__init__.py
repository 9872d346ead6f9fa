"""The pictures, as SVG; one module for each family."""

from vmtax.report.figures.drift import order_picture
from vmtax.report.figures.forest import forests
from vmtax.report.figures.interactions import crossed_picture
from vmtax.report.figures.latency import latency_pictures
from vmtax.report.figures.ledger import ledger_picture
from vmtax.report.figures.rankings import rank_pictures
from vmtax.report.figures.speed_vs_cpu import tradeoff_picture

__all__ = [
    "crossed_picture",
    "forests",
    "latency_pictures",
    "ledger_picture",
    "order_picture",
    "rank_pictures",
    "tradeoff_picture",
]
