"""Records of the joint stage: one program whose outputs are the forward's, then the gradients."""

from dataclasses import dataclass, field
from typing import Any, Literal

from aotlens.analysis.records import ViewAndMutationMeta
from aotlens.capture.recorded import Recorded
from aotlens.capture.recorder import Recorder
from aotlens.capture.records import Captured
from aotlens.ir.origin import Origin
from aotlens.ir.program import Node, Program, ProgramOutput
from aotlens.ir.slots import BACKWARD_OUTPUTS, IntermediateBase, UserOutput
from aotlens.ir.subclasses import Wrapped
from aotlens.joint.undefined_tangents import NO_DEPENDENCE, TangentDependence


@dataclass(frozen=True, slots=True)
class Joint:
    """Forward and backward in one program: the forward's outputs, then the gradients."""

    program: Program
    changed_inputs: frozenset[int] = frozenset()
    """Identities of the inputs whose caller's tensor has another value when the backward runs."""
    leaves: dict[int, Any] = field(default_factory=dict)
    """By index, the inputs that are leaves whose `.grad` receives their gradient."""
    may_save_views: bool = True
    """Whether a policy that saves what the backward reads may save a view."""

    @property
    def forward_outputs(self) -> tuple[ProgramOutput, ...]:
        return tuple(out for out in self.program.outputs if not isinstance(out.slot, BACKWARD_OUTPUTS))

    @property
    def returned_outputs(self) -> tuple[ProgramOutput, ...]:
        """The outputs that the caller keeps: user outputs and their intermediate bases."""
        return self.program.outputs_of(UserOutput, IntermediateBase)

    @property
    def gradients(self) -> tuple[ProgramOutput, ...]:
        """The backward's outputs: gradients and, with functional RNG, the new offset."""
        return self.program.outputs_of(*BACKWARD_OUTPUTS)


@dataclass(frozen=True, slots=True)
class Differentiated:
    """The tensors that autograd ran the backward on, so that it can run again with `create_graph`."""

    outputs: tuple[Any, ...] = ()
    """The forward's differentiable outputs, as the tensors that autograd knows."""
    tangents: tuple[Node, ...] = ()
    """Their tangents; empty if one of them is a wrapper subclass."""
    leaves: tuple[Any, ...] = ()
    """The inputs whose gradients were asked for: each a tensor or an autograd edge."""


@dataclass(frozen=True, slots=True)
class FailingBackward:
    """Why autograd refuses to run the backward; eager raises it when the backward runs."""

    message: str
    """Autograd's message with the user's line."""
    origin: Origin | None
    """The operator whose gradient cannot be computed; None if unknown."""
    error: Literal["RuntimeError", "NotImplementedError"] = "RuntimeError"
    """The type of eager's error."""
    results: tuple[str, ...] = ()
    """The user's names of the outputs whose backward fails; empty if all fail."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JointProgram(Joint):
    """The joint program of a captured function; in inference the backward part is empty."""

    captured: Captured
    meta: ViewAndMutationMeta
    recorded: Recorded
    """The recording with its backward."""
    builder: Recorder
    """The recording itself: a partition may save a size that no node computes yet, and a derivative or the
    backward of some tangents is recorded when a caller first asks for it."""
    training: bool
    """Whether anything needs a gradient."""
    differentiable: tuple[bool, ...]
    """For each forward output, whether it has a tangent."""
    aliases: tuple[ProgramOutput, ...] = ()
    """Outputs that the wrapper makes, as values of the graph; only for compilers that want every output."""
    wrapped_tangents: tuple[Wrapped | None, ...] = ()
    """For each tangent from autograd, in order: the wrapper that it is expected to be."""
    wrapped_gradients: dict[tuple[type, int], Wrapped] = field(default_factory=dict)
    """Gradients that are returned as wrappers, by the class of their slot and its index."""
    dependence: TangentDependence = NO_DEPENDENCE
    """Which gradients depend on which tangents."""
    differentiated: Differentiated = Differentiated()
    failing: FailingBackward | None = None
    """Set if the backward of all outputs raises, as in eager."""
    failing_tangents: dict[int, FailingBackward] = field(default_factory=dict)
    """The tangents, by index, with which it raises; empty if it raises with every one."""
    bumps_in_backward: dict[int, int] = field(default_factory=dict)
    """By how much the backward raises the version counters of the inputs that it writes to, by the identity
    of the graph input."""
    before_passes: Program | None = None
    """The program before Inductor's passes; None if they changed nothing or did not run."""

    @property
    def always_fails(self) -> bool:
        """Return True if the backward raises for any tangents, so that the program has no gradients."""
        return self.failing is not None and not self.failing_tangents
