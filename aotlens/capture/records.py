"""What capture returns: the flat inputs, the flat outputs, and what it recorded, as values.

Invariant: nothing in `Captured` changes after capture; the recording that stays open is the `builder`, which
capture returns beside it and no field here leads to.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Generic, Literal

import torch
from typing_extensions import TypeVar

from aotlens.capture.autograd.saved_tensor_hooks import SavedTensorHooks
from aotlens.capture.events import Call, EventKind
from aotlens.capture.free_variables.state import NOTHING_REACHABLE, ReachableState, Rebinding
from aotlens.capture.modes import Modes
from aotlens.capture.recorded import Recorded, StorageState
from aotlens.capture.recorder import Recorder, UnwrappedCall
from aotlens.capture.storage import Geometry, Storage
from aotlens.capture.views import ViewStep
from aotlens.ir.origin import NO_ORIGIN, Frames
from aotlens.ir.program import Node
from aotlens.ir.slots import FlatInput, FreeTensor, OuterObject, SyntheticBase
from aotlens.ir.subclasses import Wrapped
from aotlens.model.report import GraphId, Span, Variable
from aotlens.options import SideEffects
from aotlens.torch_api.fake.tensors import FakeTensorMode
from aotlens.torch_api.operators import pytree

StorageType = TypeVar("StorageType", Storage, StorageState, default=StorageState)
"""A storage as it was when the function returned, or one that the recording still changes."""


class AutogradChange(Enum):
    """A change of an input in autograd."""

    NONE = "none"
    REQUIRES_GRAD = "made to require grad"
    DETACHED = "detached in place"
    NEW_LEAF = "made a leaf in place"


@dataclass(frozen=True, slots=True)
class InputState:
    """What a write changes of one input."""

    storage_version: int
    """The number of writes to the storage that it came with."""
    geometry: Geometry
    version: int
    """Autograd's version counter; 0 for an inference tensor."""


@dataclass(frozen=True, slots=True)
class InputExit:
    """One input that is a tensor, when the function has returned: what all later stages read of it."""

    state: InputState
    storage: StorageState
    """The storage that it has: another one than at entry after a storage swap."""
    requires_grad: bool
    grad_fn: Any
    """None for a leaf, and for a view that the graph takes from its synthetic base: autograd would regenerate
    it on that base."""
    view_base: Any
    """The tensor of which autograd has it as a view; None if it is none."""
    autograd: AutogradChange
    gradient_leaf: Any
    """The tensor, or gradient edge, with the caller's gradient; None if there is none."""

    @property
    def geometry(self) -> Geometry:
        return self.state.geometry


@dataclass(frozen=True, slots=True)
class OutputExit:
    """One output that is a tensor, when the function has returned: what all later stages read of it."""

    tensor: Any
    is_differentiable: bool
    """Whether the function returned it requiring grad.

    A fake view of a detached tensor loses its `grad_fn`, and `requires_grad`, when it is asked for after a
    write without grad, unlike eager's view.
    """
    requires_grad: bool
    """As autograd has it afterwards, like all that follows."""
    grad_fn: Any
    """None for a leaf, for a view made with grad mode off, and where autograd raises."""
    raises_on_use: bool
    """Whether autograd raises when it is asked for the `grad_fn`."""
    view_base: Any
    """The tensor of which autograd has it as a view; None if it is none."""
    base_requires_grad: bool
    """Whether that tensor requires grad."""
    geometry: Geometry | None
    """None for a tensor without strides."""

    @property
    def start(self) -> Any:
        """The tensor of which autograd has it as a view, or the tensor itself."""
        return self.tensor if self.view_base is None else self.view_base

    @property
    def has_grad_fn(self) -> bool:
        return self.requires_grad and self.grad_fn is not None

    @property
    def is_created_leaf(self) -> bool:
        """Whether it is a leaf for autograd, and no view that was made with grad mode off."""
        return self.requires_grad and self.grad_fn is None and not self.base_requires_grad

    @property
    def is_viewed_without_grad(self) -> bool:
        """Whether it has no `grad_fn` because its view was made with grad mode off."""
        return self.requires_grad and self.grad_fn is None and self.base_requires_grad


@dataclass(frozen=True, slots=True)
class CapturedInput(Generic[StorageType]):
    """One leaf of the call: a parameter, a buffer, an argument's tensor, or a plain value."""

    slot: FlatInput
    argument: Any
    """What the user's function receives: a fake tensor, a symbolic number, or the plain value."""
    node: Node | None
    """The graph input; None for a plain value, which is a constant of the graph."""
    fake: Any = None
    """The input before the run, on the same storage; None for a plain value."""
    leaf: Any = None
    """The tensor, or gradient edge, whose gradient is the input's; None if it requires none."""
    storage: StorageType | None = None
    """The storage that it came with, rooted at this input; None for a plain value."""
    grad_fn: Any = None
    """The argument's grad_fn before the run."""
    version: int = 0
    """The argument's version counter before the run."""
    is_leaf: bool = True
    duplicate_of: int | None = None
    """The flat index of the first input that is the same tensor; None for the first."""
    shares_storage_with: tuple[int, ...] = ()
    base: int | None = None
    """The index of the input, or synthetic base after the flat inputs, that the graph takes instead."""
    has_own_edge: bool = False
    """Whether it has its own gradient edge although its memory belongs to a synthetic base."""
    is_leaf_view: bool = False
    """Whether it is a leaf that is a view of a tensor without gradient; views of it under no_grad have
    none."""
    free_tensor: Any = None
    """The real tensor, if it is a free tensor."""
    wrapped: Wrapped | None = None
    """For a wrapper subclass: its inner graph inputs; `node` then only provides the name."""
    exit: InputExit | None = None
    """Its state when the function had returned; None while it runs, and for a plain value."""

    @property
    def is_graph_input(self) -> bool:
        """Whether the graph takes it: no plain value, no duplicate, no view of a synthetic base."""
        return self.node is not None and self.base is None

    @property
    def has_own_gradient(self) -> bool:
        """Whether autograd computes its own gradient, not only that of its synthetic base."""
        return self.is_graph_input or (self.requires_grad and self.has_own_edge)

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The graph inputs: one, the inner ones of a wrapper, or none for a plain value."""
        if self.wrapped is not None:
            return self.wrapped.nodes()
        return (self.node,) if self.node is not None else ()

    @property
    def initial_chain(self) -> tuple[ViewStep, ...]:
        """The views that lead to it from its storage's base, before metadata mutations."""
        joined = self.storage.overlapping_inputs.items() if self.storage is not None else ()
        return next((chain for chain, node in joined if node is self.node), ())

    @property
    def is_tensor(self) -> bool:
        return self.fake is not None

    @property
    def requires_grad(self) -> bool:
        return self.leaf is not None

    @property
    def at_exit(self) -> InputExit:
        """The state of a tensor when the function had returned; only a `Captured` has it."""
        assert self.exit is not None
        return self.exit

    @property
    def gradient_leaf(self) -> Any:
        """The tensor, or gradient edge, with the caller's gradient; None if there is none."""
        return self.exit.gradient_leaf if self.exit is not None else self.leaf

    @property
    def is_view(self) -> bool:
        """Whether autograd has the caller's tensor as a view, whether or not its base is an input."""
        return self.at_exit.view_base is not None or self.fake._base is not None

    @property
    def version_bumps(self) -> int:
        """By how much the function raises the version counter."""
        return self.at_exit.state.version - self.version

    @property
    def has_new_grad_fn(self) -> bool:
        """Whether autograd sees a write to it: its `grad_fn` is not that at entry."""
        at_exit = self.at_exit
        is_written = at_exit.requires_grad and at_exit.grad_fn is not self.grad_fn
        return is_written and at_exit.autograd is not AutogradChange.NEW_LEAF


OpenInput = CapturedInput[Storage]
"""An input of an open recording, with the storage that writes to it change.

`capture_run` decides with it, after the function has returned, which inputs the graph takes; then `with_exit`
returns it as a `CapturedInput`.  Joint asks it what the backward has changed.
"""


@dataclass(frozen=True, slots=True)
class SyntheticBaseOf:
    """Overlapping inputs of which one is written to, and their synthetic base."""

    index: int
    """The base's index among the captured inputs."""
    members: tuple[int, ...]
    """Flat indices of the inputs on it, including the base itself if it is one."""
    kind: Literal["input", "view_base", "flat"]
    """The base is a member, the tensor that they are views of, or flat storage."""


@dataclass(frozen=True, slots=True)
class Structure:
    """The relation of the caller's arguments and result to the flat ones."""

    arguments: Any
    """The pytree structure of `(args, kwargs)`; None if the call is already flat."""
    result: Any
    """The pytree structure of the result; None if it is a flat tuple or list."""
    parameters: tuple[str, ...] = ()
    """The function's positional parameters, if every argument is a leaf."""
    rebindings: tuple[Rebinding, ...] = ()
    """Names and items that the function binds to other values, which follow the flat outputs."""
    rebound: tuple[str, ...] = ()
    """Buffers and attributes that the module rebinds: the last flat outputs."""
    existing_containers: tuple[tuple[tuple[int, ...], OuterObject], ...] = ()
    """Known containers in the result, by the positions that lead to them."""

    def flat(self) -> "Structure":
        """Return the structure with a tuple of the result's leaves as the result."""
        return replace(
            self, result=pytree.tree_structure((None,) * self.result.num_leaves), existing_containers=()
        )


@dataclass(frozen=True, slots=True)
class Subject:
    """What is compiled, independent of its arguments."""

    function: Callable[..., Any]
    name: str
    qualname: str
    frontend: Literal["direct", "dynamo"]
    span: Span | None
    """The `def` line, or the call of one of torch's layers; None if neither is known."""
    called_at: Frames = NO_ORIGIN
    """The call of one of torch's layers, inside which no user code runs."""
    graph: GraphId | None = None
    """Which of Dynamo's graphs it is."""


@dataclass(frozen=True, slots=True)
class CapturedTensor:
    """A free tensor: the function can read it without receiving it."""

    name: str
    """The user's expression: `state`, `model.head.weight`, `cache['k']`."""
    tensor: Any
    bindings: list[tuple[Any, Any]]
    """Each dictionary, list, class or cell that holds it, with the key."""
    shares_no_memory: bool = True
    """Whether no argument and no other free tensor shares its memory."""


@dataclass(frozen=True, slots=True)
class FlatCall:
    """One flat call to record."""

    values: list[Any]
    """Tensors, numbers and other leaves."""
    slots: tuple[FlatInput, ...]
    """The role of each value."""
    arguments: Any
    """The pytree structure of the values; None if the call is already flat."""
    run: Callable[[Recorder, tuple[OpenInput, ...]], Any]
    """Runs the user's function on the captured inputs and returns its result."""
    free_tensors: tuple[CapturedTensor, ...] = ()
    """The records of the last values."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A function that has run once on fake tensors."""

    subject: Subject
    inputs: tuple[CapturedInput, ...]
    """The flat inputs, the free tensors, then the synthetic bases that are not inputs themselves."""
    outputs: tuple[Any, ...]
    """The flat results of the user's function."""
    output_exits: Mapping[int, OutputExit]
    """The states of the outputs that are tensors, by their identities."""
    output_names: tuple[str, ...]
    structure: Structure
    recorded: Recorded
    """The recording when the function returned."""
    grad_enabled: bool
    """Whether the caller's grad mode was on."""
    fixed_modes: tuple[bool, bool] | None
    """The caller's grad and inference modes, which are guarded if the function enables grad mode."""
    inference_mode: bool
    """Whether the caller's inference mode was on."""
    grad_mode_after: bool
    """Whether grad mode was on when the function returned."""
    modes: Modes
    """The caller's other modes."""
    calls: tuple[Call, ...] = ()
    """The operators as the user's code ran them, with those on wrappers unwrapped."""
    unwrapped_calls: tuple[UnwrappedCall, ...] = ()
    """The operators on wrappers."""
    variables: tuple[Variable, ...] = ()
    bases: tuple[SyntheticBaseOf, ...] = ()
    reachable: ReachableState = NOTHING_REACHABLE
    """The function's free variables before the run; empty behind Dynamo, which guards them itself."""
    side_effects: SideEffects = SideEffects.REPLAYED
    single_use_reason: str = ""
    """The side effect that a later call would not repeat, so that the compilation is for one call."""
    hooks: SavedTensorHooks | None = None
    """The caller's saved-tensor hooks, if both are graph modules."""
    has_hooks: bool = False
    """Whether the caller had any saved-tensor hooks."""

    @property
    def fake_mode(self) -> FakeTensorMode:
        return self.recorded.fake_mode

    @property
    def is_symbolic(self) -> bool:
        """Whether there are symbolic sizes or numbers."""
        return self.fake_mode.shape_env is not None

    def exit_of(self, output: Any) -> OutputExit:
        """Return the state at exit of an output that is a tensor."""
        return self.output_exits[id(output)]

    def inputs_on(self, storage: StorageState) -> dict[int, tuple[ViewStep, ...]]:
        """Return the inputs that came with a storage, each with the views that lead to it there."""
        return {
            index: captured_input.initial_chain
            for index, captured_input in enumerate(self.inputs)
            if captured_input.storage is storage and captured_input.duplicate_of is None
        }

    def input_of(self, tensor: Any) -> CapturedInput | None:
        """Return the first input that the tensor is; None if it is none."""
        return next((item for item in self.inputs if item.argument is tensor), None)

    def span_of(self, kind: EventKind, tensor: Any) -> Span | None:
        """Return the user's expression of the last such event of a tensor, or of the function itself."""
        return self.recorded.events.span(kind, tensor) or self.subject.span

    def outputs_in(self, storage: StorageState) -> list[Any]:
        """Return the outputs on a storage."""
        tensors = (value for value in self.outputs if isinstance(value, torch.Tensor))
        return [value for value in tensors if self.recorded.tracked(value).storage is storage]

    @property
    def flat_inputs(self) -> tuple[CapturedInput, ...]:
        """The leaves of the call, without synthetic bases and free tensors."""
        return tuple(
            captured_input
            for captured_input in self.inputs
            if not isinstance(captured_input.slot, (SyntheticBase, FreeTensor))
        )
