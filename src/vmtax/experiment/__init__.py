"""Carry out a run: preview, rounds, trials, progress, resuming after a stop, archive and cleanup.

Every result is committed as soon as it exists, so that no result is lost however the program ends.
"""
