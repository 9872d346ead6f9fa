"""Parquet: the rows of the CSV with their types, for pandas, polars, DuckDB or R."""

from __future__ import annotations

import io
import shlex
import sys

from vmtax.analysis.analysis import Analysis
from vmtax.core.errors import BadInput
from vmtax.report.render.rows import rows
from vmtax.system.packages import install_here


def render_parquet(analysis: Analysis) -> bytes:
    """One file. Raises BadInput without pyarrow, which is an optional dependency."""
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError as error:
        raise BadInput(f"parquet needs pyarrow: {_install()}; csv has the same rows without it") from error
    found = rows(analysis)
    types = {str: pyarrow.string(), int: pyarrow.int64(), float: pyarrow.float64(), bool: pyarrow.bool_()}
    columns = list(zip(*found, strict=True)) or [()] * len(found.columns)  # if no trial succeeded
    arrays = [
        pyarrow.array(cells, type=types[kind]) for cells, kind in zip(columns, found.columns.values(), strict=True)
    ]
    target = io.BytesIO()
    pyarrow.parquet.write_table(pyarrow.Table.from_arrays(arrays, names=[*found.columns]), target, compression="zstd")
    return target.getvalue()


def _install() -> str:
    """The command that adds pyarrow to the Python that runs this."""
    python = shlex.quote(sys.executable)
    if sys.prefix != sys.base_prefix:
        return f"{python} -m pip install pyarrow"
    # Debian's own Python, which its package of vmtax uses: it has no pip, which refuses to install without the option.
    return f"as root, {install_here('pip')} && {python} -m pip install --break-system-packages pyarrow"
