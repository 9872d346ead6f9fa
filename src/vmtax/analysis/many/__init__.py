"""Answers over many runs: of one host over time, and of many hosts. Pure; reads only records."""
