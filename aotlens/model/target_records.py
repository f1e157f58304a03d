"""The report's records of one target: its inputs and outputs, its stages, its wrapper."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.source import (
    Phase,
    Site,
    Span,
    Tensor,
)

MutationTypeName = Literal["not_mutated", "mutated_in_graph", "mutated_out_graph"]


OutputTypeName = Literal[
    "non_alias",
    "alias_of_input",
    "is_input",
    "alias_of_intermediate_save_as_output",
    "alias_of_intermediate",
    "alias_of_intermediate_base_is_user_output",
    "unsafe_view_alias",
    "custom_function_view",
]


OF_GRADIENT = "part of the gradient of"
"""The start of the reason of a node that autograd recorded."""


@dataclass(frozen=True, slots=True)
class Input:
    """One row of the ledger of inputs: parameters, buffers and arguments, in call order."""

    index: int
    name: str
    """The user's name: `x`, `batch["ids"]`, `model.layers[3].weight`."""
    kind: str
    """`UserInput`, `Parameter`, `Buffer`, `SymInt`, `Constant`."""
    fqn: str | None
    """The fully qualified name of a parameter or buffer; None for an argument."""
    tensor: Tensor | None
    """None for an input that is no tensor."""
    mutation_type: MutationTypeName = "not_mutated"
    mutates_data: bool = False
    mutates_metadata: bool = False
    mutates_storage_metadata: bool = False
    hidden_from_autograd: bool = False
    under_no_grad: bool = False
    reason: str = ""
    """Why it is handled so, in the user's words."""
    sites: tuple[Site, ...] = ()
    """Every expression that mutates it."""
    metadata_sites: tuple[Site, ...] = ()
    """The sites that change its sizes, strides, storage offset or storage."""
    shares_storage_with: tuple[int, ...] = ()
    """Indices of other inputs on the same storage."""
    duplicate_of: int | None = None
    """The index of the first input that is the same tensor object; None when this is the first."""
    requires_grad: bool = False
    is_leaf: bool = True
    autograd_change: str | None = None
    """The change of its role in autograd: `made to require grad`; None for no change."""


@dataclass(frozen=True, slots=True)
class Base:
    """The base of an output that is a view."""

    kind: Literal["input", "intermediate", "output"]
    index: int


@dataclass(frozen=True, slots=True)
class Output:
    """One row of the ledger of outputs, in the order of the flattened result."""

    index: int
    name: str
    """Its position in the result: `out`, `out["logits"][0]`."""
    tensor: Tensor | None
    """None for an output that is no tensor."""
    output_type: OutputTypeName
    base: Base | None
    """None unless the output aliases something."""
    reason: str = ""
    sites: tuple[Site, ...] = ()
    requires_grad: bool = False
    is_side_effect: bool = False
    """Whether the wrapper stores it outside (`Target.side_effects`) instead of returning it to the caller."""


@dataclass(frozen=True, slots=True)
class StageNode:
    """One node of a stage's program."""

    name: str
    op: str
    """`placeholder`, `call_function`, `get_attr` or `output`."""
    target: str
    """The operator (`aten.mm.default`, `getitem[1]`), or the slot's name for a placeholder."""
    inputs: tuple[str, ...]
    """Names of the nodes that it reads."""
    tensor: Tensor | None
    spans: tuple[Span, ...]
    """Innermost user frame first; empty only where `reason` says which stage added the node."""
    from_: tuple[str, ...] = ()
    """Names of its ancestors in the parent stage (JSON key `from`)."""
    reason: str = ""
    layer: str | None = None
    """The layer of the model that it belongs to (`blocks.3`); None outside of layers."""

    @property
    def is_of_gradient(self) -> bool:
        """Return True if it comes from the nodes whose gradient it computes."""
        return self.reason.startswith(OF_GRADIENT)


@dataclass(frozen=True, slots=True)
class Stage:
    """One stage of the pipeline as a program."""

    name: str
    """`captured`, `desugared`, `functional`, `decomposed`; then `joint`, `forward` and `backward`, or
    `inference`."""
    parent: str | None
    nodes: tuple[StageNode, ...]
    text: str
    """The program as a Python module with the function `NAME_graph`; runs with torch alone."""
    same_as: str | None = None
    """The earlier stage with the same program; `nodes` and `text` are then empty."""


@dataclass(frozen=True, slots=True)
class WrapperStep:
    """One thing that the runtime wrapper may do on each call."""

    name: str
    applied: bool
    reason: str
    lines: tuple[int, int] | None
    """First and last line in the wrapper's source, 1-based; None when not applied."""
    bytes_per_call: int = 0
    sites: tuple[Site, ...] = ()


@dataclass(frozen=True, slots=True)
class Wrapper:
    """The text of the module that runs, and its steps."""

    source: str
    steps: tuple[WrapperStep, ...]
    bound: tuple[str, ...] = ()
    """Names that the text cannot define itself (a large constant, a container class of the user's, a compiled
    graph): with any of these it does not run elsewhere."""


@dataclass(frozen=True, slots=True)
class Variable:
    """A local variable that was bound to a tensor, at the name in its assignment."""

    span: Span
    name: str
    tensor: Tensor


@dataclass(frozen=True, slots=True)
class Guard:
    """A condition on sizes, or on a plain value, under which the compiled code serves a call."""

    expression: str
    """Over the user's names: `x.shape[0] > 4`, `self.scale == 2.0`."""
    reason: str
    span: Span | None = None
    """The expression or line that caused it; None when no line of the user's did."""
    sites: tuple[Site, ...] = ()


BUILT_IN = "its value is built into the compiled code"
"""The reason of a guard on a plain value."""


SpecialKind = Literal["effect", "higher_order"]


@dataclass(frozen=True, slots=True)
class SpecialOperator:
    """An operator with more than a result."""

    op: str
    kind: SpecialKind
    phase: Phase
    reason: str
    sites: tuple[Site, ...] = ()
