"""Simulations that hold the statistics to what they promise."""
