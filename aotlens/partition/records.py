"""What the partition stage gives."""

from dataclasses import dataclass
from typing import Any, Protocol

from aotlens.capture.autograd.saved_tensor_hooks import SavedTensorHooks
from aotlens.ir.program import Node, Program, ProgramInput
from aotlens.ir.regions import Region
from aotlens.ir.slots import FlatInput, SavedInput
from aotlens.joint.records import Joint, JointProgram
from aotlens.partition.policies import Choice
from aotlens.partition.reasons import Reason
from aotlens.partition.sides import Sides
from aotlens.policy import Policy


@dataclass(frozen=True, slots=True)
class Saved:
    """A value that goes from forward to backward."""

    node: Node
    reason: Reason
    owner: FlatInput | None
    """The input that it is, or is a view of; None for a value of the graph."""
    is_output: bool
    """Whether the caller receives it as a result too."""
    size_bytes: int
    """What it adds to memory: 0 when something else keeps it alive."""

    donated: bool = False
    """Whether the backward owns its memory: nobody else holds it or a view of it."""
    overruled: str | None = None
    """What asked for the opposite, in words."""
    packs: Node | None = None
    """The value in whose place it is saved, where a hook of the caller's packs that."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A forward value that the backward computes again."""

    node: Node
    reason: Reason
    size_bytes: int
    """What it would have cost to save."""
    flops: int
    overruled: str | None = None
    """What asked for the opposite, in words."""


@dataclass(frozen=True, slots=True)
class Split:
    """What a policy made of a joint program."""

    policy: Policy
    sides: Sides
    choice: Choice
    saved: tuple[Node, ...]
    """Inputs that the backward reads, then chosen values, in program order."""
    backward_nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """A saved value that a hook of the caller's packs at the end of the forward."""

    value: Node
    leaves: tuple[Node, ...]
    """What the backward gets in its place: tensors and numbers."""
    unpacked: Node
    """What the other hook makes of these at the start of the backward, for all that read the value there."""
    nodes: tuple[Node, ...]
    """What that hook runs, in order."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The caller's hooks on saved tensors as parts of the graphs."""

    hooks: SavedTensorHooks
    values: tuple[Packed, ...]
    """Empty where the hooks get no value: they do not run then."""


class ForwardBackward(Protocol):
    """A joint program as a forward and a backward, whoever divided it."""

    @property
    def joint(self) -> Joint: ...

    @property
    def forward(self) -> Program: ...

    @property
    def backward(self) -> Program | None: ...

    @property
    def saved_inputs(self) -> tuple[ProgramInput, ...]: ...


@dataclass(frozen=True, slots=True)
class Partitioned:
    """Forward and backward as two programs over shared nodes."""

    joint: JointProgram
    policy: str
    forward: Program
    backward: Program | None
    """None in inference."""
    saved: tuple[Saved, ...] = ()
    recomputed: tuple[Recomputed, ...] = ()
    modules: tuple[Any, Any] | None = None
    """What a partition function of the user's gave: the graph modules that the compilers get."""
    split: Split | None = None
    """What a policy decided; None in inference, and where a partition function did."""
    packing: Packing | None = None
    """Set where the caller's hooks on saved tensors are in the graphs; others run when the module does."""

    @property
    def regions(self) -> tuple[Region, ...]:
        """The marked regions that were divided, in the order in which the forward first called them."""
        return self.joint.captured.recorder.split_regions()

    @property
    def saved_inputs(self) -> tuple[ProgramInput, ...]:
        """The backward's inputs that come from the forward, in its order."""
        inputs = self.backward.inputs if self.backward is not None else ()
        return tuple(item for item in inputs if isinstance(item.slot, SavedInput))

    @property
    def saved_bytes(self) -> int:
        return sum(value.size_bytes for value in self.saved)
