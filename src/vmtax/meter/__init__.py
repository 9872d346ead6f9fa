"""Meters: what a machine is, and what it did around a measurement."""
