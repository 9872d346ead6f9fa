"""What is measured, and how often: factors, treatments, shuffled rounds, iterations, and when a run may stop.

All functions are pure: the same plan and seed give the same order on every machine.
"""
