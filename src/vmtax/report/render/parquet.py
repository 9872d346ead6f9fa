"""Parquet: the rows of the CSV with their types, for pandas, polars, DuckDB or R."""

from __future__ import annotations

import io
import itertools
import shlex
import sys
from collections.abc import Iterator

from vmtax.analysis.analysis import Analysis
from vmtax.core.errors import BadInput
from vmtax.report.render.rows import rows
from vmtax.system.packages import install_here

AT_ONCE = 2**14  # rows, which become a group of the file


def parquet_pieces(analysis: Analysis) -> Iterator[bytes]:
    """One file. Raises BadInput without pyarrow, which is an optional dependency."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadInput(f"parquet needs pyarrow: {_install()}; csv has the same rows without it") from error
    found = rows(analysis)
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    schema = pyarrow.schema([(name, types[kind]) for name, kind in found.columns.items()])
    target, lines = io.BytesIO(), iter(found)
    with pyarrow.parquet.ParquetWriter(target, schema, compression="zstd") as writer:
        while columns := list(zip(*itertools.islice(lines, AT_ONCE), strict=True)):
            arrays = [pyarrow.array(cells, type=kind) for cells, kind in zip(columns, schema.types, strict=True)]
            writer.write_table(pyarrow.Table.from_arrays(arrays, schema=schema))
    yield target.getvalue()


def _install() -> str:
    """The command that adds pyarrow to the Python that runs this."""
    python = shlex.quote(sys.executable)
    if sys.prefix != sys.base_prefix:
        return f"{python} -m pip install pyarrow"
    # Debian's own Python, which its package of vmtax uses: it has no pip, which refuses to install without the option.
    return f"as root, {install_here('pip')} && {python} -m pip install --break-system-packages pyarrow"
