"""The pictures as plotly figures, built as plain data; one module for each family, `base` is what they share."""

from vmtax.report.picture.base import Picture
from vmtax.report.picture.forest import forests
from vmtax.report.picture.latency import latency_pictures
from vmtax.report.picture.order import order_picture

__all__ = ["Picture", "forests", "latency_pictures", "order_picture"]
