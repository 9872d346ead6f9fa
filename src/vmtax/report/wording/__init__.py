"""The words that reports use for metrics and treatments, and their glossary."""
