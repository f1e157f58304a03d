"""What capture hands on: the flat inputs, the flat results, and the open recording."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Any, Literal

import torch

from aotlens.capture.autograd.saved_tensor_hooks import SavedTensorHooks
from aotlens.capture.free_variables.containers import ContainerUpdate
from aotlens.capture.free_variables.reachable import NOTHING_REACHABLE, ReachableState
from aotlens.capture.modes import Modes
from aotlens.capture.recorder import Call, Recorder, UnwrappedCall
from aotlens.capture.storage import Storage
from aotlens.capture.views import ViewStep
from aotlens.ir.origin import NO_ORIGIN, Frames, Origin
from aotlens.ir.program import Node
from aotlens.ir.slots import FlatInput, FreeTensor, OuterObject, SyntheticBase
from aotlens.ir.subclasses import Wrapped
from aotlens.model.report import GraphId, Span, Variable
from aotlens.options import SideEffects
from aotlens.torch_api.operators import pytree


@dataclass(frozen=True, slots=True)
class CapturedInput:
    """One leaf of the call: a parameter, a buffer, an argument's tensor, or a plain value."""

    slot: FlatInput
    argument: Any
    """What the user's function was given: a fake tensor, a symbolic number, or the plain value itself."""
    node: Node | None
    """The graph input; None for a plain value, which is built into the graph."""
    fake: Any = None
    """The input before the function ran, on the same storage; None for a plain value."""
    leaf: Any = None
    """The tensor, or place in the tape, whose gradient is the input's; None when it requires none."""
    storage: Storage | None = None
    """The storage as it was recorded, rooted at this input; None for a plain value."""
    grad_fn: Any = None
    """The argument's place in the tape before the function ran."""
    version: int = 0
    """The argument's version counter before the function ran."""
    is_leaf: bool = True
    duplicate_of: int | None = None
    """The flat index of the first input that is the same tensor; None when this is the first."""
    shares_storage_with: tuple[int, ...] = ()
    base: int | None = None
    """The input, or synthetic base after the flat inputs, that the graph takes in its place."""
    has_own_edge: bool = False
    """Whether it has a place in the tape of its own although its memory is a synthetic base's."""
    is_leaf_view: bool = False
    """Whether it is a leaf within a tensor without gradient: views of it without grad mode have none."""
    free_tensor: Any = None
    """The tensor itself, where the function reaches it without being given it."""
    carried_binding: tuple[Any, Any] | None = None
    """What holds it, and under which key, where each call leaves another for the next."""

    @property
    def is_graph_input(self) -> bool:
        """Whether the graph takes it: no plain value, no duplicate, no view of a synthetic base."""
        return self.node is not None and self.base is None

    @property
    def has_own_gradient(self) -> bool:
        """Whether autograd leads a gradient to it, and not only to what the graph takes in its place."""
        return self.is_graph_input or (self.requires_grad and self.has_own_edge)

    wrapped: Wrapped | None = None
    """For a wrapper subclass: the graph inputs inside it, in whose place `node` only gives the name."""

    @property
    def nodes(self) -> tuple[Node, ...]:
        """The graph inputs: one, the inner ones of a wrapper, or none for a plain value."""
        if self.wrapped is not None:
            return self.wrapped.nodes()
        return (self.node,) if self.node is not None else ()

    @property
    def initial_chain(self) -> tuple[ViewStep, ...]:
        """The views that lead to it from its storage's base, before its own sizes changed."""
        joined = self.storage.overlapping_inputs.items() if self.storage is not None else ()
        return next((chain for chain, node in joined if node is self.node), ())

    @property
    def is_tensor(self) -> bool:
        return self.fake is not None

    @property
    def requires_grad(self) -> bool:
        return self.leaf is not None

    @property
    def is_view(self) -> bool:
        """Whether the caller's tensor is a view for autograd, be its base among the inputs or not."""
        return self.argument._base is not None or self.fake._base is not None

    @property
    def becomes_leaf(self) -> bool:
        """Whether the function made a leaf of it in place (`x.detach_().requires_grad_()`)."""
        own = self.argument
        if not self.requires_grad or self.is_leaf or not own.requires_grad or own._base is not None:
            return False
        return own.grad_fn is None

    @property
    def gradient_leaf(self) -> Any:
        """The tensor whose gradient is the caller's, after the function has switched it on or off."""
        if self.becomes_leaf:
            return self.argument
        if self.leaf is not None:
            switched_off = isinstance(self.leaf, torch.Tensor) and not self.leaf.requires_grad
            return None if switched_off else self.leaf
        made = self.is_tensor and self.argument.requires_grad and self.argument.is_leaf
        return self.argument if made else None


@dataclass(frozen=True, slots=True)
class SyntheticBaseOf:
    """Overlapping inputs of which one was written, and where the wrapper finds the tensor under them."""

    index: int
    """Of the base among the captured inputs."""
    members: tuple[int, ...]
    """Flat indices of the inputs on it, the base itself included when it is one."""
    kind: Literal["input", "view_base", "flat"]
    """The base is a member; the tensor that they are views of; or a stretch of their storage."""


class GradWriteKind(Enum):
    """How the wrapper leaves a gradient."""

    ADD = "added to what is there"
    SET = "put in its place"
    SET_IF_NONE = "put there, where the call finds none"
    """The function reads the gradient, which the recording had none of."""


@dataclass(frozen=True, slots=True)
class GradWrite:
    """The `.grad` of one input after the call."""

    index: int
    """Of the flat input."""
    kind: GradWriteKind
    origin: Origin | None
    """What computes it; None where the function leaves None."""

    @property
    def is_none(self) -> bool:
        return self.origin is None


@dataclass(frozen=True, slots=True)
class Structure:
    """How the caller's arguments and result relate to the flat ones."""

    arguments: Any
    """The pytree structure of `(args, kwargs)`; None when the call is flat already."""
    result: Any
    """The pytree structure of the result; None when it is a flat tuple or list."""
    parameters: tuple[str, ...] = ()
    """Python names of the function's positional parameters, when every argument is a leaf."""
    container_updates: tuple[ContainerUpdate, ...] = ()
    """Containers among the arguments that the function changes; what they hold follows the flat results."""
    rebound: tuple[str, ...] = ()
    """Buffers and attributes that the module binds to other tensors: the last of the flat results."""
    existing_containers: tuple[tuple[tuple[int, ...], OuterObject], ...] = ()
    """Containers in the result that are there already, by the positions that lead to them."""
    registered_hooks: tuple[tuple[int, str, Any], ...] = ()
    """Hooks that the function registers on inputs: index, method, and what that is given (None: nothing)."""
    gradients: tuple[GradWrite, ...] = ()
    """What it leaves in `.grad` of inputs; the tensors are the last of the flat results."""

    def flat(self) -> "Structure":
        """With a tuple of the result's leaves as the result."""
        return replace(
            self, result=pytree.tree_structure((None,) * self.result.num_leaves), existing_containers=()
        )


@dataclass(frozen=True, slots=True)
class Subject:
    """What is compiled, before anything is known of its arguments."""

    function: Callable[..., Any]
    name: str
    qualname: str
    frontend: Literal["direct", "dynamo"]
    span: Span | None
    """Of the `def` line, or of the call of a layer that is torch's own; None when neither is known."""
    called_at: Frames = NO_ORIGIN
    """Where a layer of torch's own is called: none of what runs in it is the user's code."""
    graph: GraphId | None = None
    """Which of Dynamo's graphs it is."""


@dataclass(frozen=True, slots=True)
class CapturedTensor:
    """A tensor that the function can read without being given it."""

    name: str
    """As the user would write it: `state`, `model.head.weight`, `cache['k']`."""
    tensor: Any
    bindings: list[tuple[Any, Any]]
    """Each dictionary, list, class or cell that holds it, and under which key."""
    shares_no_memory: bool = True
    """Whether no argument and no other of these shares its memory."""


@dataclass(frozen=True, slots=True)
class FlatCall:
    """One call, flat: what capture runs."""

    values: list[Any]
    """Tensors, numbers and other leaves."""
    slots: tuple[FlatInput, ...]
    """What each value is."""
    arguments: Any
    """The pytree structure that the values came out of; None when the call is flat already."""
    run: Callable[[Recorder, tuple[CapturedInput, ...]], Any]
    """Runs the user's function on the captured inputs and gives its result."""
    free_tensors: tuple[CapturedTensor, ...] = ()
    """What the last of the values are."""


@dataclass(frozen=True, slots=True)
class Captured:
    """A function that has run once on fake tensors, with the recording still open for its backward."""

    subject: Subject
    inputs: tuple[CapturedInput, ...]
    """The flat inputs, and after them the synthetic bases that are no inputs."""
    outputs: tuple[Any, ...]
    """The flat results, as the user's function gave them."""
    output_names: tuple[str, ...]
    structure: Structure
    recorder: Recorder
    grad_enabled: bool
    """Whether the caller's grad mode was on."""
    fixed_modes: tuple[bool, bool] | None
    """The caller's grad mode and inference mode, where the function turns grad mode on by itself."""
    inference_mode: bool
    """Whether the caller's inference mode was on."""
    grad_mode_after: bool
    """Whether grad mode was on when the function returned."""
    modes: Modes
    """The modes that the call stood in."""
    forward_nodes: int
    """How many nodes the forward recorded."""
    calls: tuple[Call, ...] = ()
    """The operators as the user's code ran them; in place of those on wrappers, what was made of them."""
    unwrapped_calls: tuple[UnwrappedCall, ...] = ()
    """The operators on wrappers."""
    variables: tuple[Variable, ...] = ()
    bases: tuple[SyntheticBaseOf, ...] = ()
    reachable: ReachableState = NOTHING_REACHABLE
    side_effects: SideEffects = SideEffects.REPLAYED
    single_use_reason: str = ""
    """What a later call would not do again, in words, so that the compilation is for one call."""
    """What the function can read besides its arguments, as it was; empty behind Dynamo, which guards."""
    hooks: SavedTensorHooks | None = None
    """The caller's hooks on saved tensors, where both are graph modules."""
    has_hooks: bool = False
    """Whether the caller had any hooks on saved tensors."""

    def outputs_in(self, storage: Storage) -> list[Any]:
        """The results that lie in a storage."""
        tensors = (value for value in self.outputs if isinstance(value, torch.Tensor))
        return [value for value in tensors if self.recorder.tracked(value).storage is storage]

    @property
    def flat_inputs(self) -> tuple[CapturedInput, ...]:
        """The leaves of the call, without synthetic bases and tensors from outside."""
        return tuple(
            captured_input
            for captured_input in self.inputs
            if not isinstance(captured_input.slot, (SyntheticBase, FreeTensor))
        )
