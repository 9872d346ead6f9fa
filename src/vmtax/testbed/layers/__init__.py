"""Bring up the machines of one treatment: one file for each layer."""

from vmtax.testbed.layers.opening import opened

__all__ = ["opened"]
