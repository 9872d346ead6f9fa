"""QEMU: find it on a machine, build its command line, boot guests, and query it over QMP."""
