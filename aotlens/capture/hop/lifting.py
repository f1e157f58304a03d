"""Lift the free tensors of functions that are passed to `torch.cond` and similar operators.

Torch lets Dynamo turn such a function into a flat one without closures.  The direct frontend has no Dynamo:
it runs the function once to find the tensors that it reads from outside, and makes each an operand.

Invariant: a subgraph reads traced tensors only through its operands, so that gradients reach the tensors that
the user's function closes over.
"""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.capture.autograd.graph_walk import autograd_nodes
from aotlens.capture.hop.operands import ONE_OUTPUT, OPERANDS_BY_OPERATOR, with_extra_operands
from aotlens.ir.program import is_higher_order
from aotlens.torch_api.autograd import set_version
from aotlens.torch_api.fake.tensors import FakeTensor, detect_fake_mode
from aotlens.torch_api.hop import indices_from_tensors, without_empty_mutation_info
from aotlens.torch_api.modes import TorchDispatchMode, TorchFunctionMode, without_modes
from aotlens.torch_api.operators import pytree
from aotlens.torch_api.patches.scopes import patched
from aotlens.torch_api.patches.table import CUSTOM_FUNCTIONS
from aotlens.unsupported import unsupported

_active: ContextVar[dict[int, Any] | None] = ContextVar("lifting", default=None)
"""The caller's tensors by the identity of their fakes; None outside a recording."""

TRACED = (FakeTensor, torch.nn.Parameter)
"""Types of traced tensors; a plain free tensor is a constant."""


@contextmanager
def lifting(originals: dict[int, Any]) -> Iterator[None]:
    """In the block, `Lifted` knows the caller's tensors, which modules hold in a recorded backward."""
    token = _active.set(originals)
    try:
        yield
    finally:
        _active.reset(token)


def call_higher_order(function: Callable[..., Any], args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
    """Call `torch.cond` or a similar operator directly instead of compiling the call."""
    with Lifting():
        return function(*args, **kwargs)


class Lifting(TorchFunctionMode):
    """Intercepts the call of a higher-order operator above autograd."""

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        if is_higher_order(func) and func.name() in OPERANDS_BY_OPERATOR:
            return _call(func, args, kwargs or {})
        return func(*args, **(kwargs or {}))


def _call(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Call the operator with flat functions that have no free tensors."""
    args, kwargs = without_empty_mutation_info(func.name(), args, kwargs)
    args = tuple(_flat(arg) for arg in (*args, *kwargs.values()))
    observed: dict[int, _Observed] = {}
    free_tensors: dict[int, Any] = {}
    fake_mode = detect_fake_mode(pytree.tree_leaves(args))
    assert fake_mode is not None  # within a recording
    indexing = indices_from_tensors() if func.name() == "flex_attention" else nullcontext()
    with without_modes(), fake_mode, torch.no_grad(), indexing:
        for label, function, inputs in OPERANDS_BY_OPERATOR[func.name()](*args):
            observation = observed[id(function)] = _observe(function, inputs, returns_one=label in ONE_OUTPUT)
            free_tensors |= observation.free_tensors
    if func.name() == "flex_attention":
        return func(*_flex_arguments(args, list(observed.values())))
    bodies = {key: Lifted(observation, tuple(free_tensors.values())) for key, observation in observed.items()}
    swapped = tuple(bodies.get(id(arg), arg) for arg in args)
    results = func(*with_extra_operands(func.name(), swapped, tuple(free_tensors.values())))
    structure = next(reversed(observed.values())).structure
    return pytree.tree_unflatten(list(results), structure)


def _flex_arguments(args: tuple[Any, ...], observed: list["_Observed"]) -> tuple[Any, ...]:
    """Return the arguments with score and mask functions, each with its free tensors as its own buffers."""
    buffers = tuple(tuple(observation.free_tensors.values()) for observation in observed)
    score, mask = (Lifted(observation, own) for observation, own in zip(observed, buffers, strict=True))
    query, key, value, _, (*blocks, _), scale, options = args[:7]
    return (query, key, value, score, (*blocks, mask), scale, options, *buffers)


def _flat(arg: Any) -> Any:
    """Flatten operands to one tuple."""
    return tuple(pytree.tree_leaves(arg)) if isinstance(arg, (list, tuple)) else arg


@dataclass(frozen=True, slots=True)
class _Observed:
    """One of the user's functions, and what a trial run on fake tensors showed."""

    function: Callable[..., Any]
    free_tensors: dict[int, Any]
    """Traced tensors that it read or returned and that are not operands, by identity."""
    structure: Any
    """The pytree structure of its result."""
    returns_one: bool
    """Whether it returns a single tensor, not in a tuple."""


def _observe(function: Callable[..., Any], inputs: tuple[Any, ...], returns_one: bool) -> _Observed:
    """Run the function once on fake tensors without recording it."""
    fakes = [value.detach() if isinstance(value, torch.Tensor) else value for value in inputs]
    trial = _Trial(fakes)
    with trial:
        result = function(*fakes)
    trial.note_reads(result)
    trial.restore_versions()
    return _Observed(function, trial.free_tensors, pytree.tree_structure(result), returns_one)


class Lifted:
    """A function that takes flat operands, then the free tensors, and returns a flat tuple."""

    def __init__(self, observed: _Observed, free_tensors: tuple[Any, ...]) -> None:
        self._observed = observed
        self._free_tensors = free_tensors
        self._originals = _active.get() or {}

    def __call__(self, *operands: Any) -> Any:
        count = len(operands) - len(self._free_tensors)
        replacements: dict[int, Any] = {}
        for tensor, operand in zip(self._free_tensors, operands[count:], strict=True):
            replacements[id(tensor)] = operand
            replacements[id(self._originals.get(id(tensor)))] = (
                operand  # in the backward, modules hold their own tensors again
            )
        replacements.pop(id(None), None)
        replacing = _ReplacingMode(replacements)
        with lifting(self._originals), replacing, patched(CUSTOM_FUNCTIONS, replacing.call):
            result = self._observed.function(*operands[:count])
        leaves = [replacements.get(id(leaf), leaf) for leaf in pytree.tree_leaves(result)]
        if torch.is_grad_enabled():
            _reject_missed_operands(leaves, self._free_tensors)
        return leaves[0] if self._observed.returns_one else tuple(leaves)


def _reject_missed_operands(results: list[Any], free_tensors: tuple[Any, ...]) -> None:
    """Reject a free tensor that reached autograd without its operand: its gradient would be lost.

    An operator takes a tensor past `_ReplacingMode` where the user disables torch functions.
    """
    grad_fns = {tensor.grad_fn for tensor in free_tensors if tensor.grad_fn is not None}
    leaves = {id(tensor) for tensor in free_tensors}
    for node in autograd_nodes(result.grad_fn for result in results if isinstance(result, torch.Tensor)):
        if node in grad_fns or id(getattr(node, "variable", None)) in leaves:
            raise unsupported("outer-gradient-in-subgraph")


class _ReplacingMode(TorchFunctionMode):
    """Replaces free tensors by their operands in the arguments of every operator."""

    def __init__(self, replacements: dict[int, Any]) -> None:
        super().__init__()
        self._replacements = replacements

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        return self.call(func, args, kwargs or {})

    def call(self, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Call an operator, or a custom `autograd.Function`."""
        change = lambda leaf: self._replacements.get(id(leaf), leaf)
        args, kwargs = pytree.tree_map(change, (args, kwargs))
        return func(*args, **kwargs)


class _Trial(TorchDispatchMode):
    """Collects every traced tensor that operators read and that none of them returned."""

    supports_higher_order_operators = True

    def __init__(self, inputs: Sequence[Any]) -> None:
        super().__init__()
        self.free_tensors: dict[int, Any] = {}
        self._own = {id(value): value for value in inputs}
        self._versions: dict[int, tuple[Any, int]] = {}
        for value in inputs:
            self._note_version(value)

    def __torch_dispatch__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        self.note_reads((args, kwargs))
        result = func(*args, **(kwargs or {}))
        self._own |= {id(leaf): leaf for leaf in pytree.tree_leaves(result)}
        return result

    def note_reads(self, values: Any) -> None:
        """Note what an operator reads, or what the function returned."""
        for leaf in pytree.tree_leaves(values):
            if type(leaf) in TRACED and id(leaf) not in self._own:
                self.free_tensors[id(leaf)] = leaf
                self._note_version(leaf)

    def _note_version(self, value: Any) -> None:
        if isinstance(value, torch.Tensor) and not value.is_inference():
            self._versions.setdefault(id(value), (value, value._version))

    def restore_versions(self) -> None:
        """Restore the version counters that the trial run advanced; fakes share them with the operands."""
        counted = list(self._versions.values())
        set_version([value for value, _ in counted], [version for _, version in counted])
