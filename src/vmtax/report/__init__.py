"""Reports of an experiment: terminal, Markdown, HTML, JSON, CSV, Parquet.

All show the figures of one analysis; no report calculates results of its own. `sections/` determine what is shown,
`render/` how it is written. Measured text is shown as text, never as markup.
"""
