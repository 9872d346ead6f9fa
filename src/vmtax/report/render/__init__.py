"""How a report is written: for a terminal, as Markdown, HTML, JSON, CSV and Parquet. `formats.py` lists them."""
