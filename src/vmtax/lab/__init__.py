"""An emulated host: a guest that is a whole hypervisor host, with KVM, and runs until it is stopped.

It outlives the command that starts it, leaves nothing behind, and loses power only on demand. No other part knows
whether a host is a lab.
"""
