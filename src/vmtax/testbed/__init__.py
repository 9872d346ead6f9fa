"""Set up the machines that a run needs: hosts, layers, disks and networks.

They are set up before the first trial and undone at the end, for whatever reason the run ends.
"""
