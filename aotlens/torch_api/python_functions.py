"""torch's own Python functions for operators: `torch.sin` for `aten.sin.default`.

A Python function parses its arguments about twice as fast as the handle of an operator, which matches them
against the schema.

Invariant: a function is returned only if it calls exactly this operator with exactly these arguments.  That
is observed: both are called on tensors without data, in a dispatch mode that records the call and runs
nothing.
"""

from collections.abc import Callable
from typing import Any

import torch
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensor
from torch.utils._python_dispatch import TorchDispatchMode

from aotlens.torch_api.modes import below_views, without_autocast, without_modes

__all__ = ["SOME_TENSOR", "python_function"]

SOME_TENSOR = torch.empty(1, device="meta")
"""An argument of which only this is known: it is a dense tensor."""

OWNERS = ("_VariableFunctions", "TensorBase", "_nn")
"""Where `torch._C` has its functions.  Programs replace functions of `torch`, but none of these."""

PLAIN = (
    *(type(None), bool, int, float, complex, str),
    *(torch.dtype, torch.device, torch.layout, torch.memory_format),
)
"""Types of arguments that are passed to an operator as they are."""

Arguments = tuple[tuple[Any, ...], dict[str, Any]]
RecordedCall = tuple[Any, tuple[Any, ...], dict[str, Any]]
"""An operator with its arguments."""

_PATHS: dict[Any, str | None] = {}
"""The results so far, by operator and by the pattern of the arguments."""


def python_function(op: OpOverload, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str | None:
    """Return the path of the Python function that does what `op` does with such arguments; None if unknown.

    Fake tensors and symbolic numbers stand for those of a call, which may have other sizes.
    """
    if op.namespace != "aten":
        return None
    try:
        key = (op, _pattern(args), tuple((name, _pattern(value)) for name, value in kwargs.items()))
    except TypeError:
        return None
    if key not in _PATHS:
        _PATHS[key] = _search(op, (_example(args), {name: _example(value) for name, value in kwargs.items()}))
    return _PATHS[key]


def _pattern(value: Any) -> Any:
    """Return what parsing of an argument depends on.

    Raises:
        TypeError: an argument that neither is plain nor a dense tensor.
    """
    if isinstance(value, torch.Tensor):
        if type(value) not in (torch.Tensor, FakeTensor) or value.layout is not torch.strided:
            raise TypeError
        return ("tensor", value.dtype if value.ndim == 0 else None)  # one element may count as a number
    if isinstance(value, (list, tuple)):
        return (type(value).__name__, *map(_pattern, value))
    if isinstance(value, torch.SymInt):
        return int
    if isinstance(value, PLAIN):
        return type(value)
    raise TypeError


def _example(value: Any) -> Any:
    """Return an argument of the same pattern, without fake tensors and symbolic numbers."""
    if isinstance(value, torch.Tensor):
        sizes = [size if isinstance(size, int) else 1 for size in value.shape]
        with without_modes():
            return torch.empty(sizes, dtype=value.dtype, device="meta")
    if isinstance(value, (list, tuple)):
        return type(value)(map(_example, value))
    return 1 if isinstance(value, torch.SymInt) else value


def _search(op: OpOverload, arguments: Arguments) -> str | None:
    call = _record(op, arguments)
    if call is None or (call[0] is not op and not _is_only_overload(op)):
        return None
    if any(str(result.type) != "Tensor" for result in op._schema.returns):
        return None  # of several tensors the handle makes a list, and a Python function a tuple
    name = op._schema.name.removeprefix("aten::")
    for owner in OWNERS:
        function = getattr(getattr(torch._C, owner), name, None)
        if callable(function) and _is_same(_record(function, arguments), call):
            return f"torch._C.{owner}.{name}"
    return None


def _is_only_overload(op: OpOverload) -> bool:
    """Return True if the name chooses the operator, so that the parts of a composition need no comparison."""
    names = getattr(torch.ops.aten, op._schema.name.removeprefix("aten::")).overloads()
    return [name for name in names if "out" not in name] == [op._overloadname]


class _RecordedError(Exception):
    """Ends a call before a kernel runs; carries what was called."""

    def __init__(self, call: RecordedCall) -> None:
        super().__init__()
        self.call = call


class _Recorder(TorchDispatchMode):
    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        raise _RecordedError((func, args, kwargs or {}))


def _record(function: Callable[..., Any], arguments: Arguments) -> RecordedCall | None:
    """Return the first operator that a call reaches below autograd and autocast; None if it fails before."""
    args, kwargs = arguments
    try:
        with torch._C.DisableTorchFunction(), below_views(), without_autocast(), _Recorder():
            function(*args, **kwargs)
    except _RecordedError as recorded:
        return recorded.call
    except (TypeError, ValueError, RuntimeError, IndexError):
        return None
    return None


def _is_same(left: Any, right: Any) -> bool:
    if type(left) is not type(right):
        return False
    if isinstance(left, (list, tuple)):
        return len(left) == len(right) and all(map(_is_same, left, right))
    if isinstance(left, dict):
        return left.keys() == right.keys() and all(_is_same(left[key], right[key]) for key in left)
    if isinstance(left, PLAIN):
        return bool(left == right) or (left != left and right != right)
    return left is right
