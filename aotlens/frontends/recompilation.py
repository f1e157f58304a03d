"""Check whether a call fits a compilation, and warn when a function recompiles repeatedly."""

import warnings
from collections.abc import Callable
from typing import Any

import torch

from aotlens.capture.free_variables.changes import free_variable_check
from aotlens.compiled import Compiled
from aotlens.frontends.call_signature import HeldTensors
from aotlens.torch_api.operators import pytree

CallCheck = Callable[[Any, Any], bool]
"""Takes the arguments and keywords of a call."""


def free_variables_unchanged(compiled: Compiled) -> Callable[[], bool]:
    """Return a check that the free variables of a compilation are unchanged."""
    return free_variable_check(compiled.captured.reachable, compiled.captured.structure.rebindings)


def held_tensors(compiled: Compiled, fn: Any, leaves: list[Any]) -> HeldTensors:
    """Return the tensors that a compilation uses beside the arguments."""
    return HeldTensors(fn, leaves, _free_tensors(compiled))


def call_check(compiled: Compiled, args: Any, kwargs: Any) -> CallCheck | None:
    """Return the check before a call; None where none is needed (the module text checks the module's
    tensors)."""
    if compiled.captured.single_use_reason:
        calls = iter((True,))
        return lambda args, kwargs: next(calls, False)
    if not compiled.captured.reachable.bindings:
        return None
    free_variables_fit = free_variables_unchanged(compiled)
    if not _free_tensors(compiled):
        return lambda args, kwargs: free_variables_fit()
    held = held_tensors(compiled, None, pytree.tree_leaves((args, kwargs)))
    return lambda args, kwargs: free_variables_fit() and held.fit(pytree.tree_leaves((args, kwargs)))


def _free_tensors(compiled: Compiled) -> list[torch.Tensor]:
    """Return the tensors that the module text holds which are neither arguments nor the module's own."""
    inputs = compiled.captured.inputs
    outside = [
        captured_input.free_tensor for captured_input in inputs if captured_input.free_tensor is not None
    ]
    constants = [value for value in compiled.module.text.bound.values() if isinstance(value, torch.Tensor)]
    return [tensor for tensor in (*outside, *constants) if tensor.layout is torch.strided]


CHECKING = ("call", "reject_overlap")
"""The functions of the module text that check the arguments."""


def is_rejection(error: Exception, filename: str) -> bool:
    """Return True if a check in the module text of that name raised the error, before anything ran."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    code = step.tb_frame.f_code if step is not None else None
    return code is not None and code.co_filename == filename and code.co_name in CHECKING


WARN_AFTER = 8
"""Compilations of one function before the warning; as many as Dynamo's recompile limit."""

PROPERTIES = (
    "the class",
    "the type",
    "the device",
    "the sizes and strides",
    "whether it requires grad",
    "whether it is a leaf",
    "whether it is an inference tensor",
    "whether it is conjugated or negated",
    "which arguments are one tensor",
    "which arguments share memory",
    "the metadata of a subclass",
)
"""A tensor's properties in a signature, in its order (`frontends/call_signature.py`)."""


class Recompilations:
    """Counts the compilations of one function."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._count = 0
        self._before: tuple[Any, list[Any]] | None = None

    def note(self, described: Any, leaves: list[Any], names: list[str]) -> None:
        """Record a compilation, with the arguments' signature, values and names."""
        self._count += 1
        if self._before is not None:
            known, values = self._before
            differences = _differences(known, described, names, list(zip(values, leaves, strict=False)))
            warnings.warn(
                f"`{self._name}` was recompiled {WARN_AFTER} times, last because {differences}",
                stacklevel=3,
            )
        last = self._count == WARN_AFTER - 1
        self._before = (described, [_display_value(leaf) for leaf in leaves]) if last else None


def _display_value(leaf: Any) -> Any:
    """Return an argument as messages show it; tensors are not kept alive."""
    return list(leaf.shape) if isinstance(leaf, torch.Tensor) else leaf


def _differences(known: Any, now: Any, names: list[str], values: list[tuple[Any, Any]]) -> str:
    comparable = isinstance(known, tuple) and isinstance(now, tuple) and len(known) == len(now) == len(names)
    differing = [index for index in range(len(names)) if known[index] != now[index]] if comparable else []
    if not differing:
        return (
            "a mode of torch, a free variable or the structure of the arguments differs, or sizes violate"
            " a guard (the reports in `.compiled` list it)"
        )
    return "; ".join(
        _difference(names[index], known[index], now[index], values[index]) for index in differing[:3]
    )


def _difference(name: str, known: Any, now: Any, values: tuple[Any, Any]) -> str:
    before, after = values[0], _display_value(values[1])
    if not isinstance(values[1], torch.Tensor) or len(known) != len(now):
        return f"`{name}` is {after!r}, and was {before!r}: it is a constant; as a tensor it would not be"
    which = [what for what, old, new in zip(PROPERTIES, known, now, strict=True) if old != new]
    if before == after or which != ["the sizes and strides"]:
        return f"`{name}` differs in {', '.join(which)}"
    return (
        f"`{name}` is {after}, and was {before}: `CompileOptions(dynamic=True)` compiles once for all sizes"
    )
