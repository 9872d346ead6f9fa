"""An emulated host: a guest that is a complete hypervisor host with KVM, and runs until it is stopped.

It outlives the command that starts it, leaves nothing behind, and loses power only on demand. The rest of vmtax does
not know whether a host is a lab.
"""
