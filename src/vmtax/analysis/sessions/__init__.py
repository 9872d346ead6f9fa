"""Compare runs as sessions: those before a change with those after it. Pure; reads only records."""

from vmtax.analysis.sessions.calibration import CALIBRATE, fits
from vmtax.analysis.sessions.change import Change, Gate, MetricChange, Outcome, compared
from vmtax.analysis.sessions.facts import FactChange
from vmtax.analysis.sessions.refusal import Unlike

__all__ = ["CALIBRATE", "Change", "FactChange", "Gate", "MetricChange", "Outcome", "Unlike", "compared", "fits"]
