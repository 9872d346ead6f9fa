"""The records of every `--json` answer: their fields, in their order, are the keys; comments say what these mean.

`schema.py` makes the JSON Schema in docs/reference from them; a test checks real answers against it.
"""
