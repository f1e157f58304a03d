"""Record the outputs of everything that a script compiles, call by call, to compare two runs.

Invariant: a call inside another one is not recorded, because compiled code calls nothing.  A recorded tensor
does not change when the script mutates it later.
"""

import functools
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from aotlens.torch_api.patches.compilers import WRAP_COMPILED
from aotlens.torch_api.patches.scopes import patched

__all__ = ["Comparison", "Recorder", "compare_runs"]

MOST_ELEMENTS = 1 << 16
"""The limit of elements per tensor; larger tensors are sampled evenly."""
MOST_BYTES = 1 << 29
"""The limit of a run; later calls are only counted."""

TOLERANCES = {
    torch.float16: (1e-3, 1e-5),
    torch.bfloat16: (1.6e-2, 1e-5),
    torch.float32: (1.3e-6, 1e-5),
    torch.float64: (1e-7, 1e-7),
    torch.complex64: (1.3e-6, 1e-5),
    torch.complex128: (1e-7, 1e-7),
}
"""Relative and absolute, as in `torch.testing.assert_close`."""
DIFFERENT = float("inf")


@dataclass(frozen=True, slots=True)
class RecordedTensor:
    """A tensor as a call left it."""

    facts: str
    """Dtype, shape, device and `requires_grad`, which must be equal in both runs."""
    values: Tensor | None
    """A flat sample on the CPU; None where the limit is reached, or a layout has no flat values."""


Entry = RecordedTensor | tuple[str, object] | str
"""A tensor; the type and value of a plain value; the type of anything else, for a container with its keys or
length.
"""


@dataclass(slots=True)
class Recorder:
    """Records while the script runs; mutable."""

    entries: dict[str, Entry] = field(default_factory=dict)
    """By function, number of the call, and path within its output."""
    calls: dict[str, int] = field(default_factory=dict)
    """By function."""
    bytes: int = 0
    """The size of all recorded values, for `MOST_BYTES`."""
    modules: dict[str, nn.Module] = field(default_factory=dict)
    inputs: dict[str, Tensor] = field(default_factory=dict)
    """Leaf tensors of the caller, whose gradients are read at the end."""
    _is_inside: bool = False

    @contextmanager
    def recording(self) -> Iterator[None]:
        """Record the calls of everything that is compiled within the block."""
        with patched(WRAP_COMPILED, self._wrapped):
            yield

    def _wrapped(self, function: Callable[..., Any], compiled: Callable[..., Any]) -> Callable[..., Any]:
        """Return the compiled function so that each outermost call records outputs and changed arguments.

        It is the handler of `WRAP_COMPILED`.
        """
        owner = getattr(function, "__self__", None)
        name = getattr(function, "__qualname__", type(function).__qualname__)
        if isinstance(owner, nn.Module):
            name = type(owner).__qualname__
            self.modules.setdefault(f"{name} {len(self.modules)}", owner)

        @functools.wraps(compiled)
        def recorded(*args: Any, **kwargs: Any) -> Any:
            if self._is_inside:
                return compiled(*args, **kwargs)
            tensors = [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]
            versions = [_version(value) for value in tensors]
            self._is_inside = True
            try:
                output = compiled(*args, **kwargs)
            finally:
                self._is_inside = False
            index = self.calls[name] = self.calls.get(name, 0) + 1
            self._record(f"{name} call {index}: output", output)
            for position, (tensor, version) in enumerate(zip(tensors, versions, strict=True)):
                if _version(tensor) != version:
                    self._record(f"{name} call {index}: argument {position}", tensor)
                if tensor.is_leaf and tensor.requires_grad:
                    self.inputs[f"{name} call {index}: gradient of argument {position}"] = tensor
            return output

        return recorded

    def _record(self, path: str, value: Any) -> None:
        if isinstance(value, Tensor):
            self._record_tensor(path, value)
        elif isinstance(value, dict):
            self.entries[path] = f"{type(value).__name__} of {[str(key) for key in value]}"
            for key, entry in value.items():
                self._record(f"{path}[{key!r}]", entry)
        elif isinstance(value, list | tuple):
            self.entries[path] = f"{type(value).__name__} of {len(value)}"
            for index, entry in enumerate(value):
                self._record(f"{path}[{index}]", entry)
        elif value is None or isinstance(value, bool | int | float | str):
            self.entries[path] = (type(value).__name__, value)
        else:
            self.entries[path] = type(value).__name__

    def _record_tensor(self, path: str, tensor: Tensor) -> None:
        facts = f"{tensor.dtype} {tuple(tensor.shape)} {tensor.device} requires_grad={tensor.requires_grad}"
        values = None
        if self.bytes < MOST_BYTES and tensor.layout == torch.strided and not tensor.is_quantized:
            with torch.no_grad():
                flat = tensor.detach().reshape(-1)
                step = max(1, -(-flat.numel() // MOST_ELEMENTS))
                values = flat[::step].to("cpu", copy=True)
            self.bytes += values.numel() * values.element_size()
        self.entries[path] = RecordedTensor(facts, values)

    def finish(self) -> None:
        """Record parameters, buffers and gradients at the end of the script."""
        for name, module in self.modules.items():
            for key, tensor in (*module.named_parameters(), *module.named_buffers()):
                self._record_tensor(f"{name}: {key}", tensor)
                if tensor.grad is not None:
                    self._record_tensor(f"{name}: gradient of {key}", tensor.grad)
        for name, tensor in self.inputs.items():
            if tensor.grad is not None:
                self._record_tensor(name, tensor.grad)


def _version(tensor: Tensor) -> int:
    return -1 if tensor.is_inference() else tensor._version


@dataclass(frozen=True, slots=True)
class Comparison:
    """A run compared with the eager one."""

    errors: dict[str, float]
    """By entry, the largest error over its tolerance; infinite if shape, type or value differ."""
    calls: int
    """Calls whose outputs were compared."""
    tensors: int
    left_out: tuple[str, ...]
    """Functions that only one of the runs compiles separately."""


def compare_runs(reference: Recorder, recorder: Recorder) -> Comparison:
    """Compare what both runs compiled; buffers that only the second run has are ignored."""
    both = {name for name in reference.calls if name in recorder.calls}
    unmatched = sorted((set(reference.calls) | set(recorder.calls)) - both)
    errors = {f"{name} calls": DIFFERENT for name in both if reference.calls[name] != recorder.calls[name]}
    tensors = 0
    for path, expected in reference.entries.items():
        if path.startswith(tuple(f"{name} call " for name in unmatched)):
            continue
        actual = recorder.entries.get(path)
        errors[path] = DIFFERENT if actual is None else _error(actual, expected)
        tensors += isinstance(expected, RecordedTensor)
    calls = sum(reference.calls[name] for name in both)
    return Comparison(errors, calls, tensors, tuple(unmatched))


def _error(actual: Entry, expected: Entry) -> float:
    """Return the error over its tolerance: numbers have one, everything else is equal or different."""
    match actual, expected:
        case RecordedTensor(), RecordedTensor():
            if actual.facts != expected.facts:
                return DIFFERENT
            if actual.values is None or expected.values is None:
                return 0.0 if actual.values is expected.values else DIFFERENT
            return _tensor_error(actual.values, expected.values)
        case ("float", actual_number), ("float", expected_number):
            return _tensor_error(torch.tensor(actual_number), torch.tensor(expected_number))
    return 0.0 if actual == expected else DIFFERENT


def _tensor_error(actual: Tensor, expected: Tensor) -> float:
    if actual.numel() == 0 or torch.equal(actual, expected):
        return 0.0
    tolerances = TOLERANCES.get(expected.dtype)
    if tolerances is None:
        return DIFFERENT
    relative, absolute = tolerances
    wide = torch.complex128 if expected.is_complex() else torch.float64
    first, second = actual.to(wide), expected.to(wide)
    same = (first == second) | (first.isnan() & second.isnan())
    errors = (first - second).abs() / (absolute + relative * second.abs())
    largest = torch.where(same, torch.zeros_like(errors), errors).nan_to_num(nan=DIFFERENT).max()
    return float(largest)
