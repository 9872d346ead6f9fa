"""Results of a run's records: comparisons, rankings, scores, gains and sessions, each with its interval.

All functions are pure. They take stored records and return figures; `report` words them.
"""
