"""A run: preview, rounds, trials, progress, going on after a stop, archive and cleanup.

Every result is committed when it lands, so that no end of the program loses one.
"""
