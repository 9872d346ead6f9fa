"""What every `--json` answer holds: records whose fields, in their order, are the keys; comments say what they mean.

`schema.py` makes the JSON Schema of them that docs/reference has; a test holds the real answers to it.
"""
