"""Every `--json` answer. Each record is described once, where it is made; a `Shape` lists the keys that its answer has.

Records that only answers have are dataclasses of `Part`. `schema.py` makes the JSON Schema in docs/reference from both;
a test checks real answers against it.
"""
