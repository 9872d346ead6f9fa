"""The network under test: bridges and the paths of guests' cards."""
