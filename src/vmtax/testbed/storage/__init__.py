"""Disks of a host's own, the databases on them, and the cutting of their power."""
