"""Guard conditions on one tensor as module text, and one C++ check for all tensors of a call."""

from typing import Any

import torch

from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import has_symbols


def shape_differs(name: str, fake: Any) -> str:
    """The condition that a tensor has another shape, as far as its sizes are known."""
    if not any(isinstance(size, torch.SymInt) for size in fake.shape):
        return f"{name}.shape != {tuple(fake.shape)}"
    known = [(dim, size) for dim, size in enumerate(fake.shape) if not isinstance(size, torch.SymInt)]
    return " or ".join(
        [f"{name}.dim() != {fake.dim()}", *(f"{name}.size({dim}) != {size}" for dim, size in known)]
    )


def not_plain(name: str) -> str:
    """The condition that it is no tensor, or one that wraps others, which the graph was not made for."""
    return f"(not isinstance({name}, torch.Tensor) or hasattr({name}, '__tensor_flatten__'))"


def strides_differ(name: str, fake: Any) -> str:
    """The condition that a tensor's elements lie otherwise: whether `reshape` copies depends on it."""
    if fake.is_contiguous():
        return f"not {name}.is_contiguous()"
    if any(isinstance(step, torch.SymInt) for step in fake.stride()):
        return f"{name}.is_contiguous()"
    return f"{name}.stride() != {tuple(fake.stride())}"


def device_differs(name: str, fake: Any) -> str:
    """The condition that its memory is elsewhere: a kernel for one device cannot read another's."""
    return f"not {name}.is_cpu" if fake.device.type == "cpu" else f"{name}.device != torch.{fake.device!r}"


BITS = {"conj": "conjugated", "neg": "negated"}
"""The lazy operators, each with what it makes of a tensor."""


def lazy_bits_differ(name: str, fake: Any) -> list[str]:
    """The conditions that its memory holds other numbers than it shows: conjugates, or negatives."""
    return [f"{'not ' if is_set else ''}{name}.is_{bit}()" for bit, is_set in _checked_bits(fake)]


def lazy_bits_text(fake: Any) -> str:
    return "".join(f", {'' if is_set else 'not '}{BITS[bit]}" for bit, is_set in _checked_bits(fake))


def _checked_bits(fake: Any) -> list[tuple[str, bool]]:
    bits = {bit: getattr(fake, f"is_{bit}")() for bit in BITS}
    return [(bit, is_set) for bit, is_set in bits.items() if is_set or bit in lazy_bits(fake)]


def lazy_bits(fake: Any) -> list[str]:
    """The lazy operators that a tensor of this type and these strides can carry.

    Elements of a negative are the imaginary parts in complex memory: more than one are not contiguous.
    """
    dense = _elements(fake) > 1 and fake.is_contiguous()
    return ["conj"] * fake.is_complex() + ["neg"] * (fake.is_floating_point() and not dense)


def _elements(fake: Any) -> int:
    """As far as they are known."""
    return 0 if any(isinstance(size, torch.SymInt) for size in fake.shape) else fake.numel()


def symbolic_strides(fake: Any) -> list[tuple[int, Any]]:
    """Dimension and stride of a tensor whose elements do not simply follow one another, as symbols.

    Those come first that are a symbol of their own, since others are told in terms of them.
    """
    strides = fake.stride()
    if fake.is_contiguous() or not any(isinstance(step, torch.SymInt) for step in strides):
        return []
    by_dim = [(dim, step) for dim, step in enumerate(strides) if not _is_one(fake.shape[dim])]
    return sorted(by_dim, key=lambda dim_and_stride: not _is_symbol(dim_and_stride[1]))


def _is_one(size: Any) -> bool:
    return type(size) is int and size == 1


def _is_symbol(step: Any) -> bool:
    return isinstance(step, torch.SymInt) and bool(step.node.expr.is_symbol)


SEEN_CHECK = """
tensors_like = torch._C._dynamo.guards.TensorGuards


def seen(*tensors):
    # becomes a check in C++: are these like the tensors of a call that was checked line by line?
    return False
"""


def comparable_tensors(captured: Captured, checked: list[tuple[str, CapturedInput]]) -> list[str]:
    """The names of the tensors that it compares; none where sizes are symbols, which each call is asked for.

    A tensor that is given twice is never taken: which arguments are one tensor is checked apart.
    """
    inputs = captured.flat_inputs
    if any(
        captured_input.is_tensor and captured_input.wrapped is None and has_symbols(captured_input.fake)
        for captured_input in inputs
    ):
        return []
    return [name for name, captured_input in checked if captured_input.wrapped is None]


def write_remember(names: list[str]) -> str:
    """The line that has the tensors of this call taken from now on."""
    return (
        f"seen = tensors_like({', '.join(names)}, dynamic_dims_sizes=None, dynamic_dims_strides=None).check"
    )


def is_functorch_tensor(names: list[str]) -> str:
    """The condition that a tensor belongs to a transform of torch.func, be it one that is over.

    `autograd.Function.apply` unwraps such a tensor, and is left out for tensors that are seen again.
    """
    return f"any(map(torch._C._functorch.is_functorch_wrapped_tensor, ({', '.join(names)},)))"
