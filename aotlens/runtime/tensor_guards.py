"""Guard conditions on one tensor as module text, and one C++ check for all tensors of a call."""

from dataclasses import dataclass
from typing import Any

import torch

from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.storage import has_symbols
from aotlens.runtime.module_text import TextBuilder


@dataclass(frozen=True, slots=True)
class Checks:
    """Writes checks of one target: `if …: raise …`."""

    builder: TextBuilder
    target: str

    def raise_if(self, condition: str, error: str, message: str, actual: str = "") -> None:
        """Write a check, whose message names the target."""
        self.builder.raise_if(condition, error, f"compiled `{self.target}`: {message}", actual)


def tensor_differs(name: str, fake: Any) -> str:
    """Return the condition that a value is no plain tensor like `fake`, as far as its sizes are known."""
    is_other = f"(not isinstance({name}, torch.Tensor) or hasattr({name}, '__tensor_flatten__'))"
    # a kernel for one device cannot read another's memory
    on_cpu, device = fake.device.type == "cpu", f"torch.{fake.device!r}"
    return " or ".join(
        [
            f"type({name}) is not torch.Tensor and {is_other}",
            _shape_differs(name, fake),
            f"{name}.dtype is not {fake.dtype}",
            _strides_differ(name, fake),
            f"not {name}.is_cpu" if on_cpu else f"{name}.device != {device}",
            *(f"{'not ' if is_set else ''}{name}.is_{bit}()" for bit, is_set in _checked_bits(fake)),
        ]
    )


def wanted_text(fake: Any) -> str:
    """Return what a call must have, in the words of the error: `torch.float32 [2] contiguous on cpu`."""
    order = "contiguous" if fake.is_contiguous() else f"with strides {tuple(fake.stride())}"
    bits = "".join(f", {'' if is_set else 'not '}{BITS[bit]}" for bit, is_set in _checked_bits(fake))
    return f"{fake.dtype} {list(fake.shape)} {order} on {fake.device}{bits}"


def _shape_differs(name: str, fake: Any) -> str:
    if not any(isinstance(size, torch.SymInt) for size in fake.shape):
        return f"{name}.shape != {tuple(fake.shape)}"
    known_sizes = [(dim, size) for dim, size in enumerate(fake.shape) if not isinstance(size, torch.SymInt)]
    return " or ".join(
        [f"{name}.dim() != {fake.dim()}", *(f"{name}.size({dim}) != {size}" for dim, size in known_sizes)]
    )


def _strides_differ(name: str, fake: Any) -> str:
    """Return the condition that strides differ, on which it depends whether `reshape` copies."""
    if fake.is_contiguous():
        return f"not {name}.is_contiguous()"
    if any(isinstance(step, torch.SymInt) for step in fake.stride()):
        return f"{name}.is_contiguous()"
    return f"{name}.stride() != {tuple(fake.stride())}"


BITS = {"conj": "conjugated", "neg": "negated"}
"""The lazy operators, each with the word for its result."""


def _checked_bits(fake: Any) -> list[tuple[str, bool]]:
    bits = {bit: getattr(fake, f"is_{bit}")() for bit in BITS}
    return [(bit, is_set) for bit, is_set in bits.items() if is_set or bit in lazy_bits(fake)]


def lazy_bits(fake: Any) -> list[str]:
    """Return the lazy operators that a tensor of this dtype and these strides can carry.

    A lazy negative is a view of the imaginary part of complex memory, so with several elements it is not
    contiguous.
    """
    dense = _elements(fake) > 1 and fake.is_contiguous()
    return ["conj"] * fake.is_complex() + ["neg"] * (fake.is_floating_point() and not dense)


def _elements(fake: Any) -> int:
    """Return the number of elements; 0 if it is symbolic."""
    return 0 if any(isinstance(size, torch.SymInt) for size in fake.shape) else fake.numel()


def symbolic_strides(fake: Any) -> list[tuple[int, Any]]:
    """Return dimension and symbolic stride of a non-contiguous tensor.

    Strides that are a single symbol come first, since the others are expressed with them.
    """
    strides = fake.stride()
    if fake.is_contiguous() or not any(isinstance(step, torch.SymInt) for step in strides):
        return []
    by_dim = [(dim, step) for dim, step in enumerate(strides) if not _is_one(fake.shape[dim])]
    return sorted(by_dim, key=lambda dim_and_stride: not _is_symbol(dim_and_stride[1]))


def _is_one(size: Any) -> bool:
    """Return True for a size that is known to be 1, whose stride says nothing; a symbol gets no guard."""
    return type(size) is int and size == 1


def _is_symbol(step: Any) -> bool:
    return isinstance(step, torch.SymInt) and bool(step.node.expr.is_symbol)


SEEN_CHECK = """
tensors_like = torch._C._dynamo.guards.TensorGuards


def seen(*tensors):
    # becomes a C++ check: do these match the tensors of a call that passed all checks?
    return False
"""


def comparable_tensors(captured: Captured, checked: list[tuple[str, CapturedInput]]) -> list[str]:
    """Return the names of the tensors that the C++ check compares; none if sizes are symbolic.

    Duplicates are excluded: a separate check covers which arguments are one tensor.
    """
    inputs = captured.flat_inputs
    if any(
        captured_input.is_tensor and captured_input.wrapped is None and has_symbols(captured_input.fake)
        for captured_input in inputs
    ):
        return []
    return [name for name, captured_input in checked if captured_input.wrapped is None]


def write_remember(names: list[str]) -> str:
    """Return the line that makes the check accept tensors like those of this call from now on."""
    return (
        f"seen = tensors_like({', '.join(names)}, dynamic_dims_sizes=None, dynamic_dims_strides=None).check"
    )


def is_functorch_tensor(names: list[str]) -> str:
    """Return the condition that a tensor belongs to a torch.func transform, even a finished one.

    `autograd.Function.apply` unwraps such a tensor, and is skipped for tensors that were seen before.
    """
    return f"any(map(torch._C._functorch.is_functorch_wrapped_tensor, ({', '.join(names)},)))"
