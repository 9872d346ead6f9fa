"""Hostile tests: generated bad input of every kind, and what vmtax must do with each.

Each module of this package is one category. It has a `TITLE` and a function `cases(source, home, share)`, which
yields a `Case` for each thing that is tried. A case fails if it returns any complaint. `make hostile` runs them all
and prints, per category, how many were tried and how many failed; the unit tests run a small share of each.
"""
