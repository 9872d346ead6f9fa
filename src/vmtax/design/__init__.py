"""The design of a run: factors, treatments, shuffled rounds, iterations, and when it may stop.

All functions are pure: the same plan and seed give the same order on every machine.
"""
