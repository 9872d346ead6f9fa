"""What METHOD.md promises, simulated with fixed seeds: each module is one part of it and gives its bars."""
