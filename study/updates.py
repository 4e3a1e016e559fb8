"""A gradient, or any arrays, as the one vector that a device adds to a sum: flattened, clipped,
sent.

Arrays may be NumPy's, lists of numbers, or tensors of PyTorch, alone or several: as a list, or by
name in a dict. PyTorch is never imported: whoever has a tensor has it already.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from shoal.arrays import NDArray, np
from shoal.domain import Norm, Vector
from shoal.log import get_log
from shoal.questions.layout import NamedShape
from shoal.study.arguments import positive, wrong_type, wrong_value

log = get_log("agent")
_WANTED = "give numbers, an array or a tensor, or several of them as a list or a dict by name"
NORMS = {"l1": Norm.L1, "l2": Norm.L2, "coordinate": Norm.COORDINATE}


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class Update:
    """``vector``: float64[d], clipped. ``norm``: its length before, in the norm it was clipped in.
    ``clipped``: whether anything was changed. Both are private to the device.
    """

    vector: NDArray[np.float64]
    norm: float
    clipped: bool
    _layout: _Layout

    def __len__(self) -> int:
        return int(self.vector.size)

    def restore(self, vector: Any = None) -> Any:
        """Numbers in the shapes that the update came in, as arrays or tensors: the clipped update
        itself, or another vector as long, such as the mean of many.
        """
        flat = self.vector if vector is None else _one(vector, "vector")
        if flat.size != self.vector.size:
            raise wrong_value(
                "vector",
                f"give {self.vector.size:,} numbers, as many as the update, not {flat.size:,}",
            )
        return self._layout.restored(flat)

    def __repr__(self) -> str:
        return f"<Update of {len(self):,} numbers>"


@dataclass(frozen=True, slots=True)
class _Layout:
    """``kind``: "one" array, a "list" of them, or their ``names``. ``tensors``: of each that is
    one, the type of its numbers and where it lies; None for arrays.
    """

    kind: str
    names: tuple[str, ...]
    shapes: tuple[tuple[int, ...], ...]
    tensors: tuple[tuple[Any, Any] | None, ...]

    def restored(self, flat: NDArray[np.float64]) -> Any:
        ends = np.cumsum([math.prod(shape) for shape in self.shapes])[:-1]
        parts: list[Any] = [
            part.reshape(shape)
            for part, shape in zip(np.split(flat, ends), self.shapes, strict=True)
        ]
        parts = [
            part if tensor is None else _as_tensor(part, *tensor)
            for part, tensor in zip(parts, self.tensors, strict=True)
        ]
        if self.kind == "one":
            return parts[0]
        return parts if self.kind == "list" else dict(zip(self.names, parts, strict=True))


def clip_update(update: Any, clip: float, norm: str = "l2") -> Update:
    """The update as one vector, no longer than ``clip``: scaled down as a whole ("l2", "l1"), or
    each number by itself ("coordinate"). Give gradients, or differences of weights, not weights.
    """
    if norm not in NORMS:
        raise wrong_value("norm", f"give one of {', '.join(NORMS)}")
    most = positive("clip", clip)
    flat, layout = flattened(update)
    return _clipped(flat, layout, most, NORMS[norm])


def _clipped(flat: NDArray[np.float64], layout: _Layout, most: float, norm: Norm) -> Update:
    sizes = np.abs(flat)
    largest = float(sizes.max())
    ratios = sizes / (largest or 1.0)  # no square of a large number
    if norm is Norm.COORDINATE:
        return Update(np.clip(flat, -most, most), largest, largest > most, layout)
    relative = float(ratios.sum()) if norm is Norm.L1 else math.sqrt(float(ratios @ ratios))
    length = largest * relative
    if length <= most:
        return Update(flat, length, False, layout)
    scaled = np.copysign(ratios * (most / relative), flat)
    return Update(scaled, length, True, layout)


class VectorAgent(Protocol):
    """A device's agent, as ``shoal.clients.Agent`` is one."""

    @property
    def tasks(self) -> Any:
        """Its tasks: ``find(name).task`` is a task's."""
        ...

    async def report(self, name: str, value: Any) -> Any:
        """Take part in a task's round with this vector; returns when it has ended."""
        ...


async def send_update(agent: VectorAgent, task: str, update: Any) -> Any:
    """Clip an update as the task says and take part in its round; the outcome, as
    ``Agent.report`` returns it, once the round has ended.

    The task's own clip, norm and dimension are used, so that a device and a notebook can't differ
    from what was signed; the agent adds the noise. An update with NaN or infinity in it is answered
    as a missing one, with the zero vector, and the log says so: who takes part must not depend on
    it. Raises what ``Agent.report`` raises.
    """
    domain = agent.tasks.find(task).task.domain
    if not isinstance(domain, Vector):
        raise wrong_value("task", f"{task} asks for one answer, not for a vector: use agent.report")
    flat, layout = _in_one_row(update)
    if flat.size != domain.dimension:
        raise wrong_value(
            "update", f"{task} sums vectors of {domain.dimension:,} numbers, not of {flat.size:,}"
        )
    _check_arrays(task, domain.layout, layout)
    if not np.isfinite(flat).all():
        log.warning("an update with NaN or infinity is answered with zeros")
        return await agent.report(task, None)
    return await agent.report(task, _clipped(flat, layout, domain.clip, domain.norm).vector)


def _check_arrays(task: str, wanted: Sequence[NamedShape], given: _Layout) -> None:
    """Raises an error for arrays by name that are not the task's, in its order: they would be
    summed with others.
    """
    if given.kind != "dict" or not wanted:
        return
    for one, name, shape in zip(wanted, given.names, given.shapes, strict=False):
        if (one.name, one.shape) != (name, shape):
            raise wrong_value(
                "update",
                f"{task} sums {one} where the update has {name}[{','.join(map(str, shape))}]",
            )
    if len(wanted) != len(given.names):
        raise wrong_value(
            "update", f"{task} sums {len(wanted)} arrays, and the update has {len(given.names)}"
        )


def flattened(update: Any) -> tuple[NDArray[np.float64], _Layout]:
    """All numbers in one row, and how they were laid out. Raises an error about ``update``."""
    flat, layout = _in_one_row(update)
    if not np.isfinite(flat).all():
        raise wrong_value("update", "it holds NaN or infinity: leave this update out, or mend it")
    return flat, layout


def _in_one_row(update: Any) -> tuple[NDArray[np.float64], _Layout]:
    """The same, of whatever numbers."""
    if isinstance(update, str | bytes) or update is None:
        raise wrong_type("update", _WANTED)
    kind, parts = "one", [update]
    names: tuple[str, ...] = ()
    if isinstance(update, Mapping):
        kind, names, parts = "dict", tuple(map(str, update)), list(update.values())
    elif not hasattr(update, "shape"):
        listed = list(update) if isinstance(update, Iterable) else [update]
        if not listed or any(
            part is None or hasattr(part, "shape") or isinstance(part, list | tuple)
            for part in listed
        ):
            kind, parts = "list", listed
        else:
            parts = [listed]
    if not parts:
        raise wrong_value("update", f"it is empty: {_WANTED}")
    arrays = [_array(part, "update") for part in parts]
    flat = np.concatenate([array.ravel() for array in arrays])
    if not flat.size:
        raise wrong_value("update", f"it is empty: {_WANTED}")
    shapes = tuple(array.shape for array in arrays)
    tensors = tuple(_form(part) if _is_tensor(part) else None for part in parts)
    return flat, _Layout(kind, names, shapes, tensors)


def _one(vector: Any, argument: str) -> NDArray[np.float64]:
    return _array(vector, argument).ravel()


def _is_tensor(part: object) -> bool:
    return type(part).__module__.partition(".")[0] == "torch"


def _form(tensor: Any) -> tuple[Any, Any]:
    """What a tensor of the same kind has, so that it can be a parameter's gradient again. A mean of
    whole numbers is none: those come back in double precision.
    """
    wide = sys.modules["torch"].float64
    return (tensor.dtype if tensor.is_floating_point() else wide), tensor.device


def _as_tensor(part: NDArray[np.float64], dtype: Any, device: Any) -> Any:
    # whoever gave a tensor has loaded the library
    return sys.modules["torch"].from_numpy(part.copy()).to(device=device, dtype=dtype)


def _dense(tensor: Any, argument: str) -> Any:
    """By the tensor's own methods: detached, on the CPU, in double precision."""
    if tensor.is_complex():
        raise wrong_type(argument, "its numbers are complex: give real and imaginary parts")
    try:
        return tensor.detach().cpu().double().numpy()
    except (RuntimeError, TypeError):  # sparse, or without memory behind it
        raise wrong_type(argument, "a tensor must be dense: give tensor.to_dense()") from None


def _array(part: Any, argument: str) -> NDArray[np.float64]:
    """float64, from whatever holds numbers."""
    if part is None:
        raise wrong_type(
            argument,
            "a part of it is None, as the gradient of a layer that was not "
            "used: give zeros in its shape",
        )
    if _is_tensor(part):
        part = _dense(part, argument)
    try:
        array = np.asarray(part)
        if array.dtype.kind not in "iufb":
            raise TypeError
        return array.astype(np.float64)
    except (TypeError, ValueError):
        raise wrong_type(argument, _WANTED) from None
