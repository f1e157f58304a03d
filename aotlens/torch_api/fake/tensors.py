"""Fake tensors and their mode."""

import dataclasses
import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch._guards import detect_fake_mode
from torch._prims_common import is_contiguous_for_memory_format_or_false, suggest_memory_format
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.utils._python_dispatch import is_traceable_wrapper_subclass, is_traceable_wrapper_subclass_type

from aotlens.torch_api.dynamo.state import is_dynamo_input
from aotlens.torch_api.modes import without_modes
from aotlens.torch_api.symbolic import make_shape_env

__all__ = [
    "DATA_DEPENDENT_ERRORS",
    "DynamicOutputShapeException",
    "FakeTensor",
    "FakeTensorMode",
    "UnsupportedOperatorException",
    "allow_unbacked_symbols",
    "current_fake_mode",
    "detect_fake_mode",
    "fake_constant",
    "is_contiguous",
    "is_same_expression",
    "is_traceable_wrapper_subclass",
    "is_traceable_wrapper_subclass_type",
    "keep_constants",
    "known_fake",
    "meta_kernel_strides",
    "mute_fake_tensor_log",
    "suggest_memory_format",
    "tensor_guard",
    "to_fake",
    "with_lazy_shape_env",
    "without_fake_mode",
]

DATA_DEPENDENT_ERRORS: tuple[type[Exception], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
"""What fake tensors raise when the program needs a value."""


def tensor_guard(tensors: list[Any]) -> Callable[..., bool]:
    """Return a check that tensors have the types, devices, sizes, strides and flags of these, one by one.

    The tensors may be other objects.  Under another torch mode the check may fail.
    """
    made = torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    return made.check


def current_fake_mode() -> FakeTensorMode | None:
    """Return the active fake mode, wherever it is in the mode stack."""
    mode: FakeTensorMode | None = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    return mode


without_fake_mode: Callable[[], AbstractContextManager[Any]] = unset_fake_temporarily
"""Within it, tensors are real."""


@contextmanager
def mute_fake_tensor_log() -> Iterator[None]:
    """Keep fake tensors from logging a traceback for each mistake in the user's code."""
    logger = logging.getLogger(FakeTensorMode.__module__)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _forget_constant(value: Any) -> None:
    """Make the number in a fake tensor unknown, also within a wrapper; a symbol stays."""
    if type(value) is FakeTensor:
        number: Any = value.item_memo
        if type(number) in (int, float):
            value.item_memo = None
    elif is_traceable_wrapper_subclass(value):
        for name in value.__tensor_flatten__()[0]:
            _forget_constant(getattr(value, name))


def to_fake(mode: FakeTensorMode, tensor: torch.Tensor, **sizes: Any) -> Any:
    """Return a fake tensor for a real one; its value is unknown.

    From 2.14 on, a fake tensor with one element keeps its value as a constant, and a program would be
    compiled for it.  torch views the base of a view with another dtype as that dtype, which its sizes may not
    allow: such a view is converted without its base.
    """
    if not is_dynamo_input(tensor) and tensor._base is not None and tensor._base.dtype is not tensor.dtype:
        with without_modes():
            tensor = tensor.detach()
    if mode.shape_env is not None and tensor.dim() and not is_dynamo_input(tensor):
        sizes["source"] = _source_of_sizes(mode)
    fake = mode.from_tensor(tensor, **sizes)
    _forget_constant(fake)
    return fake


def _source_of_sizes(mode: FakeTensorMode) -> Any:
    """What the symbols of a tensor's sizes are named after: how many tensors came before it.

    Torch would count those that are alive, which differs with what this process has run before.
    """
    from torch._dynamo.source import ConstantSource

    return ConstantSource(f"__meta_utils_unknown_tensor{mode.fake_tensor_converter.meta_converter.arg_cnt}")


def is_same_expression(first: Any, second: Any) -> bool:
    """Return True if two sizes are the same number or expression; adds no guard."""
    left, right = (value if type(value) is int else value.node.expr for value in (first, second))
    return bool(left == right)


def is_contiguous(tensor: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
    """Return True if a fake tensor is known to be contiguous in that format; adds no guard."""
    return is_contiguous_for_memory_format_or_false(tensor, memory_format=memory_format)


def meta_kernel_strides(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """Return the strides of an operator's output by torch's meta kernel; takes known sizes."""
    with unset_fake_temporarily():
        metas = [
            torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device="meta")
            if isinstance(arg, torch.Tensor)
            else arg
            for arg in args
        ]
        return tuple(func(*metas, **kwargs).stride())


def fake_constant(mode: FakeTensorMode, make: Callable[[], torch.Tensor]) -> FakeTensor:
    """Return a fake tensor whose value is known, from a small real tensor."""
    with unset_fake_temporarily():
        real = make()
    return mode.fake_tensor_converter.from_real_tensor(mode, real, make_constant=True)


def keep_constants(mode: FakeTensorMode, is_kept: Callable[[torch.Tensor], bool]) -> None:
    """Let the mode also compute the values of these tensors from constants; torch does so for one element.

    This is no subclass of the mode: higher-order operators look up kernels by its exact class.
    """
    changed: Any = mode
    may_turn_const = mode.may_turn_const

    def may_be_constant(tensor: torch.Tensor) -> bool:
        is_real = not isinstance(tensor, FakeTensor) and tensor.device.type == "cpu"
        return may_turn_const(tensor) or (is_real and is_kept(tensor))

    changed.may_turn_const = may_be_constant


def known_fake(mode: FakeTensorMode, tensor: torch.Tensor) -> FakeTensor:
    """Return the fake tensor of a real one; its value is known until it is mutated.

    The mode memoises fake tensors, so this must be called once for each tensor.
    """
    converter = mode.fake_tensor_converter
    fake = converter.from_real_tensor(mode, tensor)
    if fake.constant is None:
        with unset_fake_temporarily():
            fake.constant = tensor.detach().clone()
        converter.add_constant_storage_mapping(fake)
    return fake


def with_lazy_shape_env(fake_mode: FakeTensorMode) -> FakeTensorMode:
    """Let a mode with known sizes get a shape environment when a jagged tensor is made in it.

    This is no subclass of the mode: higher-order operators look up kernels by its exact class.
    """
    mode: Any = fake_mode
    create = mode.create_symbolic_nested_int

    def create_lazily(**options: Any) -> Any:
        if mode.shape_env is None:
            mode.shape_env = make_shape_env()
        return create(**options)

    mode.create_symbolic_nested_int = create_lazily
    return fake_mode


@contextmanager
def allow_unbacked_symbols(fake_mode: FakeTensorMode) -> Iterator[None]:
    """Within the block, a data-dependent number or size is an unbacked symbol, and no error."""
    environment: Any = fake_mode.shape_env
    numbers_before = fake_mode.allow_scalar_outputs
    settings_before: Any = None if environment is None else environment.settings
    fake_mode.allow_scalar_outputs = True
    if environment is not None:
        environment.settings = dataclasses.replace(settings_before, allow_dynamic_output_shape_ops=True)
    try:
        yield
    finally:
        fake_mode.allow_scalar_outputs = numbers_before
        if environment is not None:
            environment.settings = settings_before
