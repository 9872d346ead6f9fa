"""numpy, imported at its first use, and the types of its arrays.

Importing it takes a tenth of a second, and most commands only show results that were computed before.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy as np
    import numpy.typing as npt

    Vector = npt.NDArray[np.float64]  # one dimension
    Matrix = npt.NDArray[np.float64]  # two or three dimensions
    Small = npt.NDArray[np.float32]
    Floats = Sequence[float] | Vector
else:
    import importlib

    class _Lazy:
        def __init__(self, module: str) -> None:
            self._module = module

        def __getattr__(self, name: str) -> Any:
            module = importlib.import_module(self._module)
            vars(self).update(vars(module))  # later uses find them directly
            return getattr(module, name)

    np, npt = _Lazy("numpy"), _Lazy("numpy.typing")
    Vector = Matrix = Small = Floats = Any

__all__ = ["Floats", "Matrix", "Small", "Vector", "np", "npt"]
