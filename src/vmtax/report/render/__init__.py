"""Write reports for a terminal and as Markdown, HTML, JSON, CSV and Parquet. `formats.py` lists the formats."""
