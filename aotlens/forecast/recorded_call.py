"""A recorded call of a compiled function: its values by the user's names, and copies with other values.

Invariant: a copy shares every unvaried value with the recorded call, so that growing lists and counting
modules change from call to call as in the script.
"""

import inspect
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from aotlens.dynamo.guard_names import value_text
from aotlens.dynamo.spans import statement_span
from aotlens.model.source import Span
from aotlens.torch_api.symbolic import mark_symbolic

__all__ = ["Edit", "RecordedCall", "Step", "cast", "marked", "resized", "with_grad"]

Edit = Callable[[Any], Any]
"""Makes another value from a recorded one."""


@dataclass(frozen=True, slots=True)
class Step:
    """The differences of a call from the recorded one."""

    label: str
    edits: Mapping[str, Edit]
    """By the name of the argument."""
    modes: tuple[str, ...] = ()
    """Any of `train`, `eval`, `grad`, `no_grad`."""


@dataclass(frozen=True, slots=True)
class RecordedCall:
    """The first call of a compiled function."""

    function: Callable[..., Any]
    """The function passed to `torch.compile`, or the `__call__` of a module."""
    compiled: Callable[..., Any]
    args: tuple[Any, ...]
    kwargs: dict[str, Any]

    @property
    def code_owner(self) -> Callable[..., Any]:
        """Return the user's function that has the arguments' names."""
        module = self.module
        function = self.function if module is None else module.forward
        return inspect.unwrap(getattr(function, "__func__", function))

    @property
    def qualname(self) -> str:
        name = getattr(self.code_owner, "__qualname__", type(self.function).__qualname__)
        return str(name).replace("<locals>.", "")

    @property
    def span(self) -> Span:
        code = getattr(self.code_owner, "__code__", None)
        return Span("", 1, 0, 1, 0) if code is None else statement_span(code.co_filename, code.co_firstlineno)

    @property
    def module(self) -> nn.Module | None:
        """Return the compiled module; None for a function."""
        wrapped = getattr(self.function, "__wrapped__", None)
        if isinstance(wrapped, nn.Module):  # a layer of torch's own, which Dynamo cannot enter directly
            return wrapped
        owner = getattr(self.function, "__self__", None)
        name = getattr(self.function, "__name__", "")
        is_call = name in ("__call__", "_wrapped_call_impl", "_call_impl", "forward")
        return owner if isinstance(owner, nn.Module) and is_call else None

    @property
    def modules(self) -> tuple[nn.Module, ...]:
        """Return the modules whose mode matters: its own, its arguments, and those named in the code."""
        owner = getattr(self.function, "__self__", None)
        values = [owner, self.module, *self.args, *self.kwargs.values()]
        function = self.code_owner
        code = getattr(function, "__code__", None)
        if code is not None:
            cells = getattr(function, "__closure__", None) or ()
            values += [cell.cell_contents for cell in cells if _is_filled(cell)]
            values += [function.__globals__.get(name) for name in code.co_names]
        modules = {id(value): value for value in values if isinstance(value, nn.Module)}
        return tuple(modules.values())

    @property
    def leaves(self) -> dict[str, Any]:
        """Return every value of the call by name; for dicts, lists and tuples their entries."""
        values: dict[str, Any] = {}

        def note(name: str, value: Any) -> Any:
            if type(value) is not list:
                values[name] = value
            return value

        self._mapped(note)
        return values

    def arguments(self, step: Step) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments of a call, with its variations."""

        def edit(name: str, value: Any) -> Any:
            return step.edits[name](value) if name in step.edits else value

        return self._mapped(edit)

    @property
    def lists(self) -> dict[str, list[Any]]:
        """Return the lists among the arguments, by name."""
        names = [*self._positional(len(self.args)), *self.kwargs]
        values = (*self.args, *self.kwargs.values())
        return {name: value for name, value in zip(names, values, strict=True) if type(value) is list}

    def described(self) -> tuple[str, ...]:
        """Return `x: f32[8, 16]`, `k = 3`."""
        return tuple(
            f"{name}: {value_text(value)}" if isinstance(value, Tensor) else f"{name} = {value_text(value)}"
            for name, value in self.leaves.items()
        )

    def _mapped(self, change: Callable[[str, Any], Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        names = list(self._positional(len(self.args)))
        args = tuple(_map(name, value, change) for name, value in zip(names, self.args, strict=True))
        return args, {name: _map(name, value, change) for name, value in self.kwargs.items()}

    def _positional(self, count: int) -> Iterator[str]:
        """Yield the parameters' names of positional arguments; `args[0]` without names."""
        function = self.function if self.module is None else self.module.forward
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        plain = [
            parameter.name
            for parameter in parameters
            if parameter.kind in (parameter.POSITIONAL_ONLY, parameter.POSITIONAL_OR_KEYWORD)
        ]
        rest = next(
            (parameter.name for parameter in parameters if parameter.kind is parameter.VAR_POSITIONAL), "args"
        )
        yield from plain[:count]
        yield from (f"{rest}[{index}]" for index in range(count - len(plain)))


def _is_filled(cell: Any) -> bool:
    try:
        return cell.cell_contents is not cell
    except ValueError:  # a name that is assigned later
        return False


def _map(name: str, value: Any, change: Callable[[str, Any], Any]) -> Any:
    """Return the value with its entries changed, or the value itself, so that its identity stays.

    A list is changed as a whole before its entries.
    """
    if type(value) is list:
        whole = change(name, value)
        if whole is not value:
            return whole
    if type(value) is dict:
        entries = {key: _map(f"{name}[{key!r}]", entry, change) for key, entry in value.items()}
        return value if all(entries[key] is value[key] for key in value) else entries
    if type(value) in (list, tuple):
        items = [_map(f"{name}[{index}]", entry, change) for index, entry in enumerate(value)]
        same = all(new is old for new, old in zip(items, value, strict=True))
        return value if same else type(value)(items)
    return change(name, value)


def resized(dim: int, size: int) -> Edit:
    """Return an edit that resizes the tensor with repeated or fewer rows, in the same memory order."""

    def edit(tensor: Tensor) -> Tensor:
        strides: tuple[int, ...] = tensor.stride()
        dims = sorted(range(tensor.dim()), key=lambda index: (-strides[index], index))
        index = torch.arange(size, device=tensor.device)
        with torch.no_grad():
            if tensor.shape[dim] == 0:
                shape = [
                    size if position == dim % tensor.dim() else n for position, n in enumerate(tensor.shape)
                ]
                copy = tensor.new_zeros(shape)
            else:
                copy = tensor.detach().index_select(dim, index % tensor.shape[dim])
            copy = copy.permute(dims).contiguous()
            copy = copy.permute([dims.index(position) for position in range(tensor.dim())])
        return copy.requires_grad_(tensor.requires_grad) if tensor.requires_grad else copy

    return edit


def cast(dtype: torch.dtype) -> Edit:
    """Return an edit that changes the tensor's dtype."""

    def edit(tensor: Tensor) -> Tensor:
        copy = tensor.detach().to(dtype, copy=True)
        return copy.requires_grad_() if tensor.requires_grad and dtype.is_floating_point else copy

    return edit


def with_grad(is_required: bool) -> Edit:
    """Return an edit that makes a leaf with or without a gradient."""
    return lambda tensor: tensor.detach().clone().requires_grad_(is_required)


def marked(edit: Edit | None, dims: frozenset[int]) -> Edit:
    """Return an edit whose copy has its sizes marked as symbols, except sizes of 0 and 1."""

    def mark(tensor: Tensor) -> Tensor:
        copy = tensor.detach().clone(memory_format=torch.preserve_format) if edit is None else edit(tensor)
        if edit is None and tensor.requires_grad:
            copy.requires_grad_()
        mark_symbolic(copy, {dim % copy.dim() for dim in dims if copy.shape[dim] > 1})
        return copy

    return mark
