"""Classify operators: whether they read, view, write or are random.

Invariant: the classification follows the operator's schema and tags; the tables below correct the few wrong
schemas.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from typing import Any

import torch
from torch import Tag

from aotlens.capture.operator_fixes import FAKES
from aotlens.ir.program import is_higher_order
from aotlens.torch_api.hop import has_ordered_effect
from aotlens.torch_api.operators import TorchBindOpOverload, has_composite_kernel

aten = torch.ops.aten


class Kind(Enum):
    PURE = "computes a new value"
    READ = "returns a plain number that is in a tensor"
    VIEW = "returns a view of its first argument"
    DETACH = "returns the same tensor without its grad_fn"
    MUTATION = "writes to some of its arguments"
    METADATA_MUTATION = "changes an argument's sizes and strides"
    COMPOSITE = "is defined by other operators"
    STORAGE_SWAP = "changes what storage a tensor has"
    EFFECT = "has an effect besides its results"
    HIGHER_ORDER = "runs functions that are among its arguments"


HIDDEN_SPLITS: dict[Any, Any] = {
    aten.unsafe_split.Tensor: aten.split.Tensor,
    aten.unsafe_split_with_sizes.default: aten.split_with_sizes.default,
}
"""Operators whose results are views that autograd does not see, and the equivalent view operators."""

KINDS: dict[Any, Kind] = {
    aten.detach.default: Kind.DETACH,
    aten.lift_fresh.default: Kind.DETACH,
    **dict.fromkeys(HIDDEN_SPLITS, Kind.VIEW),
    aten._local_scalar_dense.default: Kind.READ,
    aten.allclose.default: Kind.READ,
    aten.equal.default: Kind.READ,
}
"""Operators whose schema does not show their kind."""

RESIZE_STORAGE = torch.ops.inductor.resize_storage_bytes_
"""Dynamo's form of `untyped_storage().resize_`."""

STORAGE_SWAPS = frozenset({aten.set_, aten.resize_, aten.resize_as_, aten._resize_output_, RESIZE_STORAGE})

FUNCTIONAL_BY_NAME: dict[Any, Any] = {
    aten.native_batch_norm.default: aten._native_batch_norm_legit_functional.default,
    aten._index_put_impl_.default: aten.index_put.default,
}
"""Functional variants whose name does not follow the rule."""

UNDECLARED_WRITES: dict[Any, tuple[int, ...]] = {aten.native_batch_norm.default: (3, 4)}
"""Operators that write to arguments which their schema does not mark, with these arguments."""

QUERIES = frozenset(
    {
        torch.ops.prim.device.default,
        torch.ops.prim.layout.default,
        aten.size.default,
        aten.sym_size.default,
        aten.sym_size.int,
        aten.stride.default,
        aten.sym_stride.default,
        aten.sym_stride.int,
        aten.sym_numel.default,
        aten.numel.default,
        aten.dim.default,
        aten.is_contiguous.default,
        aten.is_contiguous.memory_format,
        aten.is_strides_like_format.default,
        aten.is_non_overlapping_and_dense.default,
        aten.storage_offset.default,
        aten.sym_storage_offset.default,
        aten.is_same_size.default,
        aten._has_compatible_shallow_copy_type.default,
    }
)
"""Metadata queries: answered by the fake tensors, not recorded."""


@dataclass(frozen=True, slots=True)
class Operator:
    """The recorder's classification of one overload."""

    kind: Kind
    written: tuple[int | str, ...] = ()
    """Positions (or keyword names) of the arguments that it writes to."""
    returned: tuple[int, ...] = ()
    """The indices in `written` of the arguments that it returns; empty if it returns new tensors."""
    functional: Any = None
    """The overload that returns the new values instead of writing them; None when there is none."""
    result_options: tuple[str, ...] = ()
    """Keywords for the written tensor's dtype and device that the functional variant needs (`zeros`)."""
    random: bool = False
    fake: Any = None
    """A fake kernel that replaces torch's, which returns another shape than eager; usually None."""

    def returned_value(self, targets: Sequence[Any]) -> Any:
        """Return the operator's result from the tensors that it writes to."""
        results = [targets[index] for index in self.returned]
        return results[0] if len(results) == 1 else tuple(results)


@cache
def describe(func: Any) -> Operator:
    """Classify one overload."""
    if is_higher_order(func):
        return Operator(Kind.HIGHER_ORDER)
    if func in KINDS:
        return Operator(KINDS[func])
    if func.overloadpacket in STORAGE_SWAPS:
        return Operator(Kind.STORAGE_SWAP)
    random, fake = Tag.nondeterministic_seeded in func.tags, FAKES.get(func)
    written = UNDECLARED_WRITES.get(func) or written_arguments(func)
    if Tag.inplace_view in func.tags:
        return Operator(Kind.METADATA_MUTATION, written, _returned(func), _functional_variant(func))
    if written:
        functional = _functional_variant(func)
        if functional is None and has_composite_kernel(func):  # `dropout_` whole, under inference mode
            return Operator(Kind.COMPOSITE)
        options = _result_options(func, functional)
        return Operator(Kind.MUTATION, written, _returned(func), functional, options, random, fake)
    if has_ordered_effect(func) or isinstance(func, TorchBindOpOverload):
        return Operator(Kind.EFFECT)
    if has_composite_kernel(func):
        return Operator(Kind.COMPOSITE)
    if any(r.alias_info is not None for r in func._schema.returns):
        return Operator(Kind.VIEW)
    return Operator(Kind.PURE, random=random, fake=fake)


def is_builtin(func: Any) -> bool:
    """Return True if the operator is one of torch's own."""
    return func.namespace in ("aten", "prim", "prims")


def is_operator(func: Any) -> bool:
    """Return True for a dispatcher operator, False for a Python function such as `manual_seed`."""
    return hasattr(func, "namespace")


def written_arguments(func: Any) -> tuple[int | str, ...]:
    """Return the arguments that the schema marks as written, by position or by keyword."""
    written: list[int | str] = []
    for position, argument in enumerate(func._schema.arguments):
        if argument.alias_info is not None and argument.alias_info.is_write:
            written.append(argument.name if argument.kwarg_only else position)
    return tuple(written)


def _returned(func: Any) -> tuple[int, ...]:
    """Return the returned indices: `rrelu_with_noise_` also writes the noise, but returns only the value."""
    aliases = [arg.alias_info for arg in func._schema.arguments if arg.alias_info is not None]
    names = [alias.before_set for alias in aliases if alias.is_write]
    results = [result.alias_info for result in func._schema.returns]
    if not all(alias is not None and alias.is_write for alias in results):
        return ()
    return tuple(names.index(alias.before_set) for alias in results)


TENSOR_OPTIONS = frozenset({"dtype", "layout", "device", "pin_memory"})
"""Arguments of `zeros` that `zeros.out` lacks: the tensor that it fills has them."""


def _functional_variant(func: Any) -> Any:
    """Return the overload with new results: `add` for `add_`, `zeros` for `zeros.out`."""
    if func in FUNCTIONAL_BY_NAME:
        return FUNCTIONAL_BY_NAME[func]
    namespace, name = func._schema.name.split("::")
    packets = getattr(torch.ops, namespace)
    wanted = _inputs_of(func)
    operator = name.replace("__i", "__", 1)  # `x <<= 1` calls `__ilshift__`
    plain = name.removesuffix("_")
    for packet_name in (plain, plain + "_functional", operator):
        packet = getattr(packets, packet_name, None)
        for overload in packet.overloads() if packet is not None else ():
            variant = getattr(packet, overload)
            inputs = [arg for arg in _inputs_of(variant) if arg in wanted or arg[0] not in TENSOR_OPTIONS]
            if not written_arguments(variant) and inputs == wanted:
                return variant
    return None


def _result_options(func: Any, functional: Any) -> tuple[str, ...]:
    if functional is None or not func._schema.arguments[-1].is_out:
        return ()
    names = {argument.name for argument in func._schema.arguments}
    more = {argument.name for argument in functional._schema.arguments} - names
    return tuple(name for name in ("dtype", "device") if name in more)


def _inputs_of(func: Any) -> list[tuple[str, str]]:
    """Return names and types of the arguments, without those that only receive results."""
    outs = {argument.name for argument in func._schema.arguments if argument.is_out}
    return [(arg.name, str(arg.type)) for arg in func._schema.arguments if arg.name not in outs]


def missing_defaults(func: Any, functional: Any, argument_count: int) -> tuple[Any, ...]:
    """Return positional defaults of the writing overload that its functional variant lacks."""
    defaults = []
    wanted = functional._schema.arguments
    for position, argument in enumerate(func._schema.arguments):
        if position < argument_count or argument.kwarg_only or position >= len(wanted):
            continue
        if wanted[position].has_default_value():
            break
        defaults.append(argument.default_value)
    return tuple(defaults)


Decompositions = dict[Any, Callable[..., Any]]


def with_dtype(func: Any, kwargs: dict[str, Any], result: Any, default: torch.dtype) -> dict[str, Any]:
    """Return the keywords with an explicit dtype if the function has changed the default dtype."""
    if torch.get_default_dtype() is default:
        return kwargs
    named = any(argument.name == "dtype" for argument in func._schema.arguments)
    if named and kwargs.get("dtype") is None and isinstance(result, torch.Tensor):
        return {**kwargs, "dtype": result.dtype}
    return kwargs
