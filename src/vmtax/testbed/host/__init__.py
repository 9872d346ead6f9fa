"""What a host is and has: its CPUs and disks, what a run needs of it, what it lacks."""
