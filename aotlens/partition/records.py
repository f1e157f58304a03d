"""The records of the partition stage."""

from dataclasses import dataclass
from typing import Any

from aotlens.capture.autograd.saved_tensor_hooks import SavedTensorHooks
from aotlens.ir.program import Node, Program, ProgramInput
from aotlens.ir.regions import Region
from aotlens.ir.slots import FlatInput, SavedInput
from aotlens.joint.records import Joint, JointProgram
from aotlens.partition.policies import Choice
from aotlens.partition.rules import Reason
from aotlens.partition.sides import Sides
from aotlens.policy import Policy


@dataclass(frozen=True, slots=True)
class Saved:
    """A value that is saved in the forward for the backward."""

    node: Node
    reason: Reason
    owner: FlatInput | None
    """The input that the value is, or is a view of; None for a value that the graph computes."""
    is_output: bool
    """Whether the forward also returns the value to the caller."""
    size_bytes: int
    """The memory that saving adds: 0 where something else keeps the storage alive."""

    donated: bool = False
    """Whether the backward may overwrite the storage: nobody else holds it or a view of it."""
    overruled: str | None = None
    """The checkpoint policy that asked for the opposite, in words."""
    packs: Node | None = None
    """The value that a saved-tensor hook packs into this one; None for a value that is saved as it is."""


@dataclass(frozen=True, slots=True)
class Recomputed:
    """A forward value that the backward recomputes."""

    node: Node
    reason: Reason
    size_bytes: int
    """The memory that saving it would have added."""
    flops: int
    overruled: str | None = None
    """The checkpoint policy that asked for the opposite, in words."""


@dataclass(frozen=True, slots=True)
class Split:
    """The division of a joint program by a policy."""

    policy: Policy
    sides: Sides
    choice: Choice
    saved: tuple[Node, ...]
    """The inputs that the backward reads, then the chosen values, in program order."""
    backward_nodes: tuple[Node, ...]


@dataclass(frozen=True, slots=True)
class Packed:
    """A saved value that the user's `pack` hook replaces at the end of the forward."""

    value: Node
    leaves: tuple[Node, ...]
    """The tensors and numbers that are saved instead."""
    unpacked: Node
    """The result of the `unpack` hook at the start of the backward, which every reader of the value reads."""
    nodes: tuple[Node, ...]
    """The nodes that the `unpack` hook runs, in order."""


@dataclass(frozen=True, slots=True)
class Packing:
    """The user's saved-tensor hooks, two graph modules, as parts of the graphs."""

    hooks: SavedTensorHooks
    values: tuple[Packed, ...]
    """Empty where no value is packed: the hooks do not run then."""


@dataclass(frozen=True, slots=True)
class ForwardBackward:
    """A joint program as forward and backward, two programs that share nodes."""

    joint: Joint
    forward: Program
    backward: Program | None
    """None in inference."""

    @property
    def saved_inputs(self) -> tuple[ProgramInput, ...]:
        """Return the backward's inputs that the forward saved, in order."""
        return self.backward.inputs_of(SavedInput) if self.backward is not None else ()


@dataclass(frozen=True, slots=True)
class Partitioned(ForwardBackward):
    """The division of a captured function by a policy, or by the user's partition function."""

    joint: JointProgram
    policy: str
    """The policy's text, or the name of the user's partition function; in inference, where such a function
    does not run, `none`."""
    saved: tuple[Saved, ...] = ()
    recomputed: tuple[Recomputed, ...] = ()
    modules: tuple[Any, Any] | None = None
    """The two graph modules that the user's partition function returned, which are compiled as they are."""
    split: Split | None = None
    """The decision of a policy; None in inference, and where a partition function decided."""
    packing: Packing | None = None
    """Set where saved-tensor hooks are parts of the graphs; otherwise hooks run with the module."""

    @property
    def regions(self) -> tuple[Region, ...]:
        """Return the `invoke_subgraph` regions with their own partition, in the order of their first call in
        the forward."""
        return self.joint.recorded.regions

    @property
    def saved_bytes(self) -> int:
        return sum(value.size_bytes for value in self.saved)
