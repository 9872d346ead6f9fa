"""All machines of a run, from the set-up to the end; those that take turns."""
