"""The pictures as plotly figures, built as plain data; one module for each family, `base` is what they share."""

from vmtax.report.picture.base import Choice, Picture
from vmtax.report.picture.crossed import crossed_picture
from vmtax.report.picture.forest import forests
from vmtax.report.picture.latency import latency_pictures
from vmtax.report.picture.order import order_picture
from vmtax.report.picture.rank import rank_pictures
from vmtax.report.picture.tradeoff import tradeoff_picture

__all__ = [
    "Choice",
    "Picture",
    "crossed_picture",
    "forests",
    "latency_pictures",
    "order_picture",
    "rank_pictures",
    "tradeoff_picture",
]
