"""Names of metrics and treatments in reports, and the glossary."""
