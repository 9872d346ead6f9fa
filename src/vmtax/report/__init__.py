"""Reports of an experiment: terminal, Markdown, HTML, JSON, CSV, Parquet.

All show the figures of one analysis; no report computes a result of its own. `sections/` say what is shown, `render/`
how it is written. What was measured is shown as text, never as markup.
"""
