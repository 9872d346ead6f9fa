"""What every part speaks in: records, events, units, quantities, checks and the kinds of failure.

All records are frozen and hold base units: seconds, bytes, bits, operations. Nothing here reads or changes anything.
"""
