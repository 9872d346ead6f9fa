"""Reports of an experiment: terminal, HTML, JSON. All show one `view`; none computes a result of its own."""
