"""The wrapper plan: what `call` does to inputs and outputs around the graphs, as step records in order.

`WrapperPlan` decides from the metadata which steps a target needs; `aotlens.runtime.wrapper` renders each of
them as lines of the module text.  A new step is a record here, a line in `WrapperPlan` and a `case` there.

Invariant: the order of the steps is the order in which they run, and the order of the report's rows.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from aotlens.analysis.records import InputAliasInfo, OutputAliasInfo, OutputBase
from aotlens.capture.events import EventKind
from aotlens.capture.records import AutogradChange
from aotlens.ir.origin import sites_of
from aotlens.ir.tensor_text import size_bytes
from aotlens.joint.records import JointProgram
from aotlens.model.report import Site
from aotlens.partition.records import Partitioned


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    """One step of `call`; the report shows its title and reason."""

    title: ClassVar[str]
    reason: str
    sites: tuple[Site, ...] = ()
    """The user's expressions that make the step necessary."""
    bytes_per_call: int = 0
    """What the step copies on every call."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RequireGrad(Step):
    """`requires_grad_()` on inputs, before the graphs run, so that autograd leads the gradient to them."""

    title = "make inputs require grad"
    inputs: tuple[InputAliasInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class ResizeLeaves(Step):
    """New sizes of leaves, before autograd sees them: it checks gradients against the sizes it has seen."""

    title = "set sizes of leaves"
    inputs: tuple[InputAliasInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class DetachInputs(Step):
    """`detach_()` or `requires_grad_(False)` on inputs, after views with their former grad_fn are taken.

    A leaf loses its flag, since `detach_()` raises an error on views; torch changes no flag of other tensors.
    """

    title = "detach inputs"
    inputs: tuple[InputAliasInfo, ...]
    views_before: tuple[OutputAliasInfo, ...]
    """Outputs that are views of an input as it was before it was detached."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CopyBack(Step):
    """The new values of mutated inputs, copied to the caller's tensors."""

    title = "copy back mutated inputs"
    inputs: tuple[InputAliasInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SwapStorages(Step):
    """New storages of inputs; all are taken before any is assigned, since two inputs may swap theirs."""

    title = "swap storages of inputs"
    swapped: tuple[InputAliasInfo, ...]
    reset: tuple[InputAliasInfo, ...]
    """Leaves that keep their storage, and get a new autograd edge by `set_`."""
    views_before: tuple[OutputAliasInfo, ...]
    """Outputs that are views of an input on its former storage."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGeometry(Step):
    """New sizes, strides and storage offsets of inputs."""

    title = "set sizes and strides of inputs"
    inputs: tuple[InputAliasInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class BumpVersions(Step):
    """Version counters of inputs that the graph itself writes to, raised as eager does."""

    title = "raise version counters"
    inputs: tuple[InputAliasInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RequireGradOfOutputs(Step):
    """Outputs that are new leaves, on memory of their own."""

    title = "make outputs require grad"
    outputs: tuple[OutputAliasInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class RegenerateAliases(Step):
    """Outputs made views of the caller's tensors, or of one another, again; each before its own views.

    One that is a new leaf then requires grad.
    """

    title = "regenerate aliases"
    outputs: tuple[OutputAliasInfo, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class SetGradMode(Step):
    """The grad mode that the function leaves."""

    title = "set grad mode"
    enabled: bool | None
    """None where it leaves its caller's."""


class WrapperPlan:
    """The steps of one target, in three groups; `reshaped` are leaves whose new sizes autograd must see."""

    def __init__(self, parts: Partitioned, reshaped: tuple[InputAliasInfo, ...]) -> None:
        self._joint = parts.joint
        self._captured = parts.joint.captured
        self._meta = parts.joint.meta
        self._reshaped = reshaped

    def before_the_graphs(self) -> Iterator[Step]:
        """Yield what autograd must see of the inputs before the graphs run."""
        on = (AutogradChange.REQUIRES_GRAD, AutogradChange.NEW_LEAF)
        if infos := tuple(info for info in self._meta.inputs if info.autograd in on):
            yield RequireGrad(reason="the function enables it for an input", inputs=infos)
        if self._reshaped:
            yield ResizeLeaves(reason="their gradients have these sizes", inputs=self._reshaped)

    def changes_of_inputs(self) -> Iterator[Step]:
        """Yield what happens to the caller's tensors once the graphs have run."""
        inputs = self._meta.inputs
        if detached := tuple(info for info in inputs if info.autograd is AutogradChange.DETACHED):
            yield DetachInputs(
                reason="the function detaches an input in place",
                inputs=detached,
                views_before=self._views_before_change(with_former_grad_fn=True),
            )
        yield self._copy_back()
        yield from self._swap_storages()
        changed = tuple(info for info in inputs if info.new_geometry is not None)
        yield SetGeometry(
            reason="sizes or strides of an input change" if changed else "no input's sizes or strides change",
            sites=_sites(changed),
            inputs=changed,
        )
        # those whose metadata alone changes were raised before the graph ran
        written = (info for info in inputs if info.wrapper_version_bumps and info.is_mutated)
        raised = tuple(info for info in written if not info.changes_metadata_only)
        yield BumpVersions(
            reason="autograd must see the writes inside the graph"
            if raised
            else "no version counter changes",
            sites=_sites(raised),
            inputs=raised,
        )

    def _copy_back(self) -> CopyBack:
        changed = tuple(self._meta.out_of_graph)
        reasons = dict.fromkeys(info.reason for info in changed)
        return CopyBack(
            reason="; ".join(reasons) or "no input is mutated outside the graph",
            sites=_sites(changed),
            bytes_per_call=sum(size_bytes(self._captured.inputs[info.index].fake) or 0 for info in changed),
            inputs=changed,
        )

    def _swap_storages(self) -> Iterator[SwapStorages]:
        inputs = self._meta.inputs
        swapped = tuple(info for info in inputs if info.storage_swap is not None)
        unswapped = (info for info in inputs if info.storage_swap is None)
        reset = tuple(info for info in unswapped if gets_new_edge(self._joint, info))
        if swapped or reset:
            yield SwapStorages(
                reason="an input ends on another storage",
                sites=_sites(swapped),
                swapped=swapped,
                reset=reset,
                views_before=self._views_before_change(with_former_grad_fn=False),
            )

    def _views_before_change(self, with_former_grad_fn: bool) -> tuple[OutputAliasInfo, ...]:
        """Return the outputs that view an input before it was detached, or else on its former storage."""
        views = (info for info in self._meta.outputs if info.viewed_before_change)
        return tuple(info for info in views if self._keeps_former_grad_fn(info) is with_former_grad_fn)

    def _keeps_former_grad_fn(self, output: OutputAliasInfo) -> bool:
        base: Any = output.base
        info = self._meta.inputs[base.index]
        detached = info.autograd is AutogradChange.DETACHED
        return detached and (output.requires_grad or info.storage_swap is None)

    def outputs(self) -> Iterator[Step]:
        """Yield how outputs become what they are in eager, and the grad mode that the function leaves."""
        outputs = self._meta.outputs
        aliases = tuple(info for info in outputs if info.base is not None and info.value is None)
        remaining = [info for info in aliases if not info.viewed_before_change]
        yield RequireGradOfOutputs(
            reason="the function enables it itself",
            outputs=tuple(info for info in outputs if info.is_leaf and info not in remaining),
        )
        reasons = dict.fromkeys(info.reason for info in aliases)
        yield RegenerateAliases(
            reason="; ".join(reasons) or "no output is an alias",
            outputs=tuple(sorted(remaining, key=lambda info: _alias_depth(outputs, info))),
        )
        yield SetGradMode(reason="the function changes grad mode", enabled=self._meta.grad_mode_after)


def gets_new_edge(joint: JointProgram, info: InputAliasInfo) -> bool:
    """Return True if `set_` gave a leaf a new autograd edge, and no gradient of the call goes there."""
    argument = joint.captured.inputs[info.index].argument
    return is_reset_leaf(joint, info) and not joint.recorded.events.has(
        EventKind.GRADIENT_AT_NEW_EDGE, argument
    )


def is_reset_leaf(joint: JointProgram, info: InputAliasInfo) -> bool:
    """Return True if `set_` gave a leaf a new autograd edge."""
    captured_input = joint.captured.inputs[info.index]
    is_reset = joint.recorded.events.has(EventKind.NEW_EDGE, captured_input.argument)
    return captured_input.is_leaf and is_reset


def _sites(infos: Iterable[InputAliasInfo]) -> tuple[Site, ...]:
    return sites_of(write.origin for info in infos for write in info.writes)


def _alias_depth(outputs: tuple[OutputAliasInfo, ...], info: OutputAliasInfo) -> int:
    """Return how many outputs are made before this one, which is a view of the last of them."""
    return 1 + _alias_depth(outputs, outputs[info.base.index]) if isinstance(info.base, OutputBase) else 0
