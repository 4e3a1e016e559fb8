"""numpy, loaded with the first array: each file has ``from shoal.arrays import np`` at its top.

An idle device keeps no array, and numpy would cost it 14 MB. So every module takes ``np`` from
here, a stand-in that becomes numpy when one of its attributes is asked for, and type checkers see
numpy itself. Whatever runs when a module is imported (a constant, a default argument, a base class)
names ``np`` only where no device imports that module; annotations are never run.

The standard library's ``LazyLoader`` (and ``lazy-loader``, which is made of it) shows a second
thread a numpy that is half loaded, in Python before 3.11.9; an ``import`` waits.
"""

from __future__ import annotations

from types import ModuleType
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray
else:

    class _Numpy(ModuleType):
        def __getattr__(self, name: str) -> object:
            import numpy

            self.__dict__.update(vars(numpy))
            self.__class__ = ModuleType  # from here on attributes cost what numpy's own do
            return getattr(numpy, name)

    class NDArray:
        """``numpy.typing.NDArray``, which only annotations name."""

    np = _Numpy("numpy")

__all__ = ["NDArray", "np"]
