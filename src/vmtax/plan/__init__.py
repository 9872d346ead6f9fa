"""Plans: parse YAML text into one validated record.

Every error names the line, what is wrong and what would be right. `builtin/` holds the plans that come with vmtax,
`schema.py` the record, `estimate.py` what a plan needs and what it can show.
"""
