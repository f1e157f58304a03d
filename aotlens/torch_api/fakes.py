"""Fake tensors, what they tell the modes that record them, and the symbols that stand for sizes."""

import logging
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

DATA_DEPENDENT_ERRORS: tuple[type[Exception], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
"""What fake tensors raise when the program needs a value."""


def make_shape_env() -> Any:
    """A fresh environment of symbolic sizes."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv  # 0.6 s to import, only for dynamic shapes

    return ShapeEnv()


def first_expression(number: Any) -> Any:
    """A symbolic number as it was made, before anything was found out about its symbols."""
    return number.node._expr


def print_expression(expression: Any, names: dict[str, str]) -> str:
    """A size expression as Python text over these names of its symbols."""
    from torch.utils._sympy.printers import PythonPrinter  # sympy: only under dynamic shapes

    class Printer(PythonPrinter):
        def _print_Symbol(self, symbol: Any) -> str:  # noqa: N802 (sympy's naming)
            return names[str(symbol)]

    return str(Printer().doprint(expression))


MARK = "_dynamo_dynamic_indices"
"""Where `torch._dynamo.mark_dynamic` keeps which sizes of a tensor are symbols."""


def mark_symbolic(tensor: torch.Tensor, dims: set[int]) -> None:
    """Say that of this tensor's sizes just these are symbols, as `torch._dynamo.mark_dynamic` does."""
    setattr(tensor, MARK, dims)


def symbolic_sizes(tensor: torch.Tensor) -> Any:
    """How to make the marked sizes of a tensor symbols; None when nothing is marked."""
    marked = getattr(tensor, MARK, None)
    if marked is None:
        return None
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    kinds = [DimDynamic.DUCK if dim in marked else DimDynamic.STATIC for dim in range(tensor.dim())]
    return StatelessSymbolicContext(dynamic_sizes=kinds)


def with_ragged_sizes(fake_mode: FakeTensorMode) -> FakeTensorMode:
    """Let a mode with known sizes get an environment of symbols when a jagged tensor is made in it.

    No subclass of the mode: higher-order operators find their kernels by its very class.
    """
    mode: Any = fake_mode
    create = mode.create_symbolic_nested_int

    def create_lazily(**options: Any) -> Any:
        if mode.shape_env is None:
            mode.shape_env = make_shape_env()
        return create(**options)

    mode.create_symbolic_nested_int = create_lazily
    return fake_mode


def known_number(mode: FakeTensorMode, make: Callable[[], torch.Tensor]) -> FakeTensor:
    """A fake tensor that knows its value, from a small real one."""
    with unset_fake_temporarily():
        real = make()
    return mode.fake_tensor_converter.from_real_tensor(mode, real, make_constant=True)


@contextmanager
def quiet_fake_tensors() -> Iterator[None]:
    """Keep fake tensors from logging a traceback of theirs for each error that the user's code makes."""
    logger = logging.getLogger(FakeTensorMode.__module__)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def tell_of_silent_changes() -> None:
    """Make what no operator tells of known to the dispatch modes that ask for it.  Idempotent.

    `fake.data = source` calls `data_assigned(fake, source)` before it is done; `storage.resize_(size)` calls
    `storage_resized(storage, size)` in its place, since a fake storage has no memory.
    """
    if "data" in vars(FakeTensor):
        return
    plain: Any = torch.Tensor.data
    resize: Any = torch.UntypedStorage.resize_

    def assign(target: Any, source: Any) -> None:
        for told in _asking_modes("data_assigned"):
            told(target, source)
        plain.__set__(target, source)

    def resize_and_tell(storage: Any, size: Any) -> Any:
        asking = _asking_modes("storage_resized")
        for told in asking:
            told(storage, size)
        return storage if asking else resize(storage, size)

    FakeTensor.data = property(plain.__get__, assign)  # type: ignore[assignment]
    torch.UntypedStorage.resize_ = resize_and_tell  # type: ignore[assignment, method-assign]


def _asking_modes(method: str) -> list[Any]:
    return [getattr(mode, method) for mode in _get_current_dispatch_mode_stack() if hasattr(mode, method)]
