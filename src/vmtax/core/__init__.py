"""The vocabulary of all parts: records, events, units, quantities, checks and kinds of failure.

All records are frozen and use base units: seconds, bytes, bits, operations. Nothing here reads or changes anything.
"""
