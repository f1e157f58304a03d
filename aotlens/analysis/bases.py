"""The bases that aliases are regenerated from (inputs, outputs, intermediates as hidden outputs), and how.

Invariants: all regenerated tensors on a storage start from the base that the storage has here; what relates
an output to its base is found in one way, whatever the base is.
"""

from dataclasses import dataclass
from typing import Any

from aotlens.analysis.records import (
    AliasBase,
    BaseInfo,
    InputBase,
    IntermediateBaseOf,
    OutputAliasInfo,
    OutputBase,
    OutputType,
)
from aotlens.capture.recorded import StorageState
from aotlens.capture.records import Captured
from aotlens.capture.storage import Geometry, view_base
from aotlens.capture.views import ViewStep, views_after
from aotlens.torch_api.autograd import shares_version_counter
from aotlens.unsupported import unsupported


class Bases:
    """The hidden outputs, and the base of each storage that has one."""

    def __init__(self, captured: Captured) -> None:
        self._captured = captured
        self._by_storage: dict[int, AliasBase] = {}
        self.hidden: list[BaseInfo] = []

    def of(self, storage: StorageState) -> AliasBase | None:
        """Return the base of the tensors on a storage; None if it has none yet."""
        return self._by_storage.get(id(storage))

    def set(self, storage: StorageState, base: AliasBase) -> AliasBase:
        """Make this the base of the tensors on a storage."""
        self._by_storage[id(storage)] = base
        return base

    def hide(self, info: BaseInfo, storage: StorageState) -> AliasBase:
        """Add a hidden output, as the base of the tensors on a storage."""
        self.hidden.append(info)
        return self.set(storage, IntermediateBaseOf(len(self.hidden) - 1))

    def tensor(self, base: AliasBase | None) -> Any:
        """Return the fake tensor of a base; None for a constant, and for a base without gradient."""
        match base:
            case InputBase(index=index):
                return self._captured.inputs[index].argument
            case OutputBase(index=index):
                return self._captured.outputs[index]
            case IntermediateBaseOf(index=index):
                return self.hidden[index].tensor
        return None


@dataclass(frozen=True, slots=True)
class Start:
    """What an output is regenerated from."""

    base: AliasBase
    tensor: Any
    """The base's fake tensor."""
    chain: tuple[ViewStep, ...] | None
    """The views that lead from there to the output; None if only its geometry describes it."""


def alias_of(
    captured: Captured, index: int, start: Start, output_type: OutputType, reason: str
) -> OutputAliasInfo:
    """Describe an output that the wrapper regenerates."""
    value = captured.outputs[index]
    at_exit = captured.exit_of(value)
    is_leaf = at_exit.is_created_leaf
    is_detached = (is_leaf or not at_exit.requires_grad) and not is_linked(captured, value, start.tensor)
    return OutputAliasInfo(
        index=index,
        output_type=output_type,
        reason=reason,
        value=None,
        base=start.base,
        chain=start.chain or (),
        geometry=geometry_on_base(captured, start.chain, value, start.tensor),
        requires_grad=at_exit.is_differentiable,
        detached_after=views_before_detach(captured, value, start.chain) if is_detached else None,
        has_own_version=not shares_version_counter(value, start.tensor),
        viewed_without_grad=at_exit.is_viewed_without_grad,
        raises_on_use=at_exit.raises_on_use,
        is_leaf=is_leaf,
        tensor=value,
    )


def is_linked(captured: Captured, value: Any, base: Any) -> bool:
    """Return True if autograd knows the output as a view of what the base is a view of, with one gradient.

    The base's own tensor is no view of the hidden output that replaces it.
    """
    at_exit = captured.exit_of(value)
    has_one_gradient = at_exit.requires_grad or not at_exit.base_requires_grad
    return value is not base and at_exit.start is view_base(base) and has_one_gradient


def views_before_detach(captured: Captured, value: Any, chain: tuple[ViewStep, ...] | None) -> int:
    """Return how many of the views from a base to an output precede the views of the detached tensor."""
    recorded, autograd_base = captured.recorded, captured.exit_of(value).view_base
    steps = 1 if chain is None else len(chain)
    if autograd_base is None:
        return steps
    tracked, base_tracked = recorded.tracked(value), recorded.tracked(autograd_base)
    if base_tracked.storage is not tracked.storage:
        return steps
    pairs = enumerate(zip(tracked.chain, base_tracked.chain, strict=False))
    shorter = min(len(tracked.chain), len(base_tracked.chain))
    common = next((index for index, (own_step, base_step) in pairs if own_step is not base_step), shorter)
    return max(steps - (len(tracked.chain) - common), 0)


def geometry_on_base(
    captured: Captured, chain: tuple[ViewStep, ...] | None, value: Any, base: Any
) -> Geometry | None:
    """Return the value's geometry on the base's storage if no view chain leads there; else None.

    Raises:
        UnsupportedError: it reinterprets the memory in a way that sizes and strides do not express.
    """
    if chain is not None:
        return None
    otherwise = reinterpreted_as(value, base)
    if otherwise is not None:
        captured_input = captured.input_of(base)
        raise unsupported(
            "reinterpreted-view-of-changed-leaf",
            captured.subject.span,
            tensor="a tensor" if captured_input is None else f"`{captured_input.slot.name}`",
            reinterpretation=otherwise,
        )
    return captured.exit_of(value).geometry


def reinterpreted_as(value: Any, base: Any) -> str | None:
    """Return how a tensor reinterprets another's memory (dtype, conjugate, negative); None if it does not."""
    if value.dtype is not base.dtype:
        return "another dtype"
    alike = value.is_conj() == base.is_conj() and value.is_neg() == base.is_neg()
    return None if alike else "its conjugate or negative"


def relative_chain(captured: Captured, base: Any, value: Any) -> tuple[ViewStep, ...] | None:
    """Return the views that lead from `base` to an output; None if only geometry describes it.

    Autograd also uses geometry for a view whose sizes changed with grad mode off.
    """
    steps = views_after(captured.recorded.tracked(base).chain, captured.recorded.tracked(value).chain)
    if steps is None:
        return None
    unseen = any(step.in_place and not step.grad_enabled for step in steps)
    return None if unseen and captured.exit_of(value).has_grad_fn else steps
