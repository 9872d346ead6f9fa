"""Measure many hosts: who they are, and what repeats `vmtax run --fleet` on each: Ansible, or threads.

That command carries what matters (one measurement on a host at a time, no trial twice), so whatever is here may be
killed and started again, also in several places at once.
"""
