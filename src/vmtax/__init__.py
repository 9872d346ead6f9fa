"""vmtax measures what virtualization costs on your machine."""

__version__ = "0.1.0"
