"""The contents of reports, one module per section."""
