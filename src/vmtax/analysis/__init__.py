"""What the records of a run show: comparisons, rankings, scores, gains and sessions, each with its interval.

All functions are pure. They take stored records and return figures; how a figure is worded is for `report`.
"""
