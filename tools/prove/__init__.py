"""`make prove`: the statistics against simulated machines whose truth is known. Every figure has a bar to clear."""
