"""QEMU: what there is of it on a machine, its command line, the boot of a guest, and what can be asked of it (QMP)."""
