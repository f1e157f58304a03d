"""What the joint stage gives: one program whose outputs are the forward's and then the gradients."""

from dataclasses import dataclass, field
from typing import Any, Literal

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.records import Captured
from aotlens.ir.origin import Origin
from aotlens.ir.program import Node, Program, ProgramOutput
from aotlens.ir.slots import BACKWARD_OUTPUTS, IntermediateBase, UserOutput
from aotlens.ir.subclasses import Wrapped
from aotlens.joint.undefined_tangents import UserGradSource


@dataclass(frozen=True, slots=True)
class Joint:
    """Forward and backward in one program: outputs of the forward, then gradients."""

    program: Program

    @property
    def forward_outputs(self) -> tuple[ProgramOutput, ...]:
        return tuple(out for out in self.program.outputs if not isinstance(out.slot, BACKWARD_OUTPUTS))

    @property
    def returned_outputs(self) -> tuple[ProgramOutput, ...]:
        """The outputs that live on with the caller: results and the bases that results are views of."""
        return tuple(
            out for out in self.program.outputs if isinstance(out.slot, (UserOutput, IntermediateBase))
        )

    @property
    def gradients(self) -> tuple[ProgramOutput, ...]:
        """What the backward gives: gradients, and where it draws the random generator's new offset."""
        return tuple(out for out in self.program.outputs if isinstance(out.slot, BACKWARD_OUTPUTS))

    @property
    def changed_inputs(self) -> frozenset[int]:
        """Identities of the inputs whose caller's tensor has another value when the backward runs."""
        return frozenset()

    def leaf(self, index: int) -> Any:
        """The tensor of an input in whose `.grad` autograd puts its gradient; None for any other input."""
        return None

    @property
    def may_save_views(self) -> bool:
        """Whether a policy that saves what the backward reads may save a view."""
        return True


@dataclass(frozen=True, slots=True)
class Differentiated:
    """What autograd was run on for the backward, kept so that it can be run again with a graph of its own."""

    outputs: tuple[Any, ...] = ()
    """The forward's differentiable results, as the tensors that autograd knows."""
    tangents: tuple[Node, ...] = ()
    """The gradients that arrive for them; empty where one of them is a wrapper subclass."""
    leaves: tuple[Any, ...] = ()
    """The inputs whose gradients were asked for: a tensor or a place in the tape each."""


@dataclass(frozen=True, slots=True)
class FailingBackward:
    """Why autograd refuses to run the backward; eager raises it when the backward runs."""

    message: str
    """Autograd's own words, and the user's line."""
    origin: Origin | None
    """The operator whose gradient cannot be computed; None where it is not known."""
    error: Literal["RuntimeError", "NotImplementedError"] = "RuntimeError"
    """The type of eager's error."""
    results: tuple[str, ...] = ()
    """The user's names of the results for which it is so; empty where it is for all."""


@dataclass(frozen=True, slots=True)
class JointProgram(Joint):
    """The joint program of a captured function; in inference the backward part is empty."""

    captured: Captured
    meta: ViewAndMutationMeta
    training: bool
    """Whether anything needs a gradient."""
    differentiable: tuple[bool, ...]
    """For each forward output, whether its gradient arrives as a tangent (in that order)."""
    aliases: tuple[ProgramOutput, ...] = ()
    """Results that the wrapper makes, as values of the graph; only for compilers that want every result."""
    wrapped_tangents: tuple[Wrapped | None, ...] = ()
    """For each tangent that autograd gives, in order: the wrapper that it is expected to be."""
    wrapped_gradients: dict[tuple[type, int], Wrapped] = field(default_factory=dict)
    """Gradients that are handed out as wrappers, by the class of their slot and its index."""
    tangents_by_gradient: dict[tuple[type, int], frozenset[int]] = field(default_factory=dict)
    """By the class of a gradient's slot and its index: which of the tangents it comes from."""
    materialises_zeros: bool = False
    """Whether eager fills in zeros where no gradient arrives at all: a custom function does."""
    user_grad_sources: tuple[UserGradSource, ...] = ()
    """What is on the way that may tell a missing gradient from zeros."""
    differentiated: Differentiated = Differentiated()
    failing: FailingBackward | None = None
    """Set where the backward of all results raises, as in eager."""
    failing_tangents: dict[int, FailingBackward] = field(default_factory=dict)
    """By their order, the tangents with which it raises; where it raises with every one, none are listed."""
    bumps_in_backward: dict[int, int] = field(default_factory=dict)
    """By how much the backward raises the version counters of inputs that it writes to, by the identity of
    the graph input."""
    before_passes: Program | None = None
    """The program before Inductor's passes over it; None where these changed nothing, or did not run."""

    @property
    def always_fails(self) -> bool:
        """Whether the backward raises whatever arrives: no gradient is a value of the program then."""
        return self.failing is not None and not self.failing_tangents

    def leaf(self, index: int) -> Any:
        captured = self.captured.inputs[index]
        is_leaf = captured.is_tensor and captured.is_leaf and captured.requires_grad
        return captured.fake if is_leaf else None

    @property
    def changed_inputs(self) -> frozenset[int]:
        changed: set[int] = set()
        for info in self.meta.inputs:
            if info.mutates_data:
                before = self.captured.inputs[info.index].nodes
                after = info.value.nodes() if isinstance(info.value, Wrapped) else (None,) * len(before)
                changed.update(id(old) for old, new in zip(before, after, strict=True) if old is not new)
        return frozenset(changed)
