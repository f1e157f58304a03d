"""Records of the analysis: every mutation and alias of one captured function, in AOTAutograd's terms."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from aotlens.capture.records import AutogradChange
from aotlens.capture.storage import Geometry, Write
from aotlens.capture.views import ViewStep
from aotlens.ir.program import Node
from aotlens.ir.subclasses import Value


class MutationType(Enum):
    """Where a mutation of an input happens at run time."""

    NOT_MUTATED = "not_mutated"
    MUTATED_IN_GRAPH = "mutated_in_graph"
    MUTATED_OUT_GRAPH = "mutated_out_graph"


class OutputType(Enum):
    """How an output relates to the inputs and to the other outputs."""

    NON_ALIAS = "non_alias"
    ALIAS_OF_INPUT = "alias_of_input"
    IS_INPUT = "is_input"
    ALIAS_OF_INTERMEDIATE_SAVE_AS_OUTPUT = "alias_of_intermediate_save_as_output"
    ALIAS_OF_INTERMEDIATE = "alias_of_intermediate"
    ALIAS_OF_INTERMEDIATE_BASE_IS_USER_OUTPUT = "alias_of_intermediate_base_is_user_output"
    UNSAFE_VIEW_ALIAS = "unsafe_view_alias"
    CUSTOM_FUNCTION_VIEW = "custom_function_view"


@dataclass(frozen=True, slots=True)
class InputBase:
    """The base is the caller's own tensor."""

    index: int


@dataclass(frozen=True, slots=True)
class IntermediateBaseOf:
    """The base is a hidden output of the graph."""

    index: int


@dataclass(frozen=True, slots=True)
class OutputBase:
    """The base is another output."""

    index: int


@dataclass(frozen=True, slots=True)
class ConstantBase:
    """The output is a real tensor that the function captures."""

    node: Node


AliasBase = InputBase | IntermediateBaseOf | OutputBase | ConstantBase


@dataclass(frozen=True, slots=True)
class StorageSwap:
    """The storage that an input has after the call."""

    base: AliasBase
    chain: tuple[ViewStep, ...]
    """The views that lead from the base to the input."""


@dataclass(frozen=True, slots=True)
class InputAliasInfo:
    """What the function does to one flat input."""

    index: int
    mutation_type: MutationType
    reason: str
    hidden_from_autograd: bool = False
    """Autograd does not see the data mutations (`detach`, `.data`): the version counter is unchanged."""
    under_no_grad: bool = False
    """Every write ran with grad mode off."""
    version_bumps: int = 0
    """By how much the function raises the input's version counter, without writes through another overlapping
    input."""
    new_geometry: Geometry | None = None
    """The geometry after the call; None if it is unchanged."""
    is_view: bool = False
    """Autograd knows the input as a view, and the graph reads it through that `grad_fn`."""
    metadata_mutated_without_grad: bool = False
    """All metadata mutations ran with grad mode off."""
    seen_by_autograd: bool = False
    """Whether the new value has its own `grad_fn`, so that its gradient arrives as a tangent."""
    value: Value | None = None
    """The new value; None if the data is not mutated.  It has the input's geometry at entry, or the new one
    if the input is written to after a storage swap."""
    writes: tuple[Write, ...] = ()
    base: int | None = None
    """The input or synthetic base through which the new data reaches it; None if it is written to itself."""
    storage_swap: StorageSwap | None = None
    """The storage that the input has at the end; None if it keeps its own."""
    autograd: AutogradChange = AutogradChange.NONE
    """Whether the function enabled its gradient, detached it, or made it a new leaf."""
    is_resized: bool = False
    """Whether the caller's tensor must be resized before it can hold the new value."""
    storage_bytes: Any = None
    """The size of the storage after the call; None if it is unchanged."""

    is_reshaped_leaf: bool = False
    """Whether it is a leaf that has other sizes, and so a gradient of other sizes, after the call."""

    @property
    def mutates_data(self) -> bool:
        return self.value is not None

    @property
    def mutates_storage(self) -> bool:
        """Return True if the input's storage is swapped or resized."""
        return self.storage_swap is not None or self.storage_bytes is not None

    @property
    def mutates_metadata(self) -> bool:
        return self.new_geometry is not None

    @property
    def wrapper_version_bumps(self) -> int:
        """By how much the wrapper raises the version counter, in addition to its own writes.

        It is 0 where such a write (a copy, a new geometry) raises the counter already, and where eager does
        not raise it.
        """
        if self.hidden_from_autograd or self.seen_by_autograd:
            return 0
        if self.mutation_type is MutationType.MUTATED_OUT_GRAPH and self.storage_swap is None:
            return 0
        return self.version_bumps

    @property
    def changes_metadata_only(self) -> bool:
        """Return True if only its sizes or strides change, so that what the graph saves of it stays valid."""
        is_alone = self.mutates_metadata and not self.mutates_data and self.storage_swap is None
        return is_alone and not self.is_view  # its bumped version would regenerate a view's `grad_fn`

    @property
    def is_mutated(self) -> bool:
        return self.mutates_data or self.mutates_metadata or self.storage_swap is not None

    @property
    def mutates_metadata_or_storage(self) -> bool:
        """Return True if the caller's tensor has another geometry or another storage after the call."""
        return self.new_geometry is not None or self.storage_swap is not None


@dataclass(frozen=True, slots=True)
class OutputAliasInfo:
    """One flat output, and how the wrapper makes it."""

    index: int
    output_type: OutputType
    reason: str
    value: Any
    """The node that computes it, or a wrapper around such nodes; a plain value for what is no tensor; None
    for an alias."""
    base: AliasBase | None = None
    chain: tuple[ViewStep, ...] = ()
    """The views that lead from the base to the output; replayed on each call."""
    geometry: Geometry | None = None
    """Set if the views cannot be replayed, so that the wrapper uses `as_strided`."""
    same_object_as: int | None = None
    """An earlier output that is the same tensor object, and then the base."""
    requires_grad: bool = False
    detached_after: int | None = None
    """The number of views after which it is detached; the rest are views of the detached tensor.  None if
    autograd knows the base as its base.  `as_strided` counts as one view."""
    has_own_version: bool = False
    """It counts its writes separately from its base (`.data`), and autograd does not see them there."""
    viewed_without_grad: bool = False
    """The view was made with grad mode off, or before its base required grad, so it has no `grad_fn`."""
    raises_on_use: bool = False
    """As above, or one of several outputs of an operator, and its base was written to since: autograd rejects
    uses."""
    is_leaf: bool = False
    """A leaf that the function makes require grad; if it has a base, on the storage of an input or output."""
    viewed_before_change: bool = False
    """A view of an input, made before the input's storage is swapped or the input is detached."""
    custom_function_input: int | None = None
    """The input that a custom function made the view of; None for all other outputs."""
    is_custom_function_view: bool = False
    """A custom function made the view, of an intermediate that other outputs share."""
    tensor: Any = None
    """The fake tensor; None for a plain value."""


@dataclass(frozen=True, slots=True)
class BaseInfo:
    """An intermediate that several outputs are views of, returned as a hidden output."""

    value: Value
    tensor: Any
    is_cut_off: bool = False
    """Each output that is a view of it was made with grad mode off, or is a view of one that was: it requires
    grad but never receives a gradient."""
    without_gradient: bool = False
    """No output that is a view of it has a gradient; it then needs no tangent."""


@dataclass(frozen=True, slots=True)
class ViewAndMutationMeta:
    """Everything that later stages need to know about mutation and aliasing."""

    inputs: tuple[InputAliasInfo, ...]
    """One per flat input, then one per synthetic base that is no input itself."""
    outputs: tuple[OutputAliasInfo, ...]
    """One per flat output."""
    bases: tuple[BaseInfo, ...]
    grad_mode_after: bool | None
    """Grad mode at the end of the function; None if it is unchanged."""

    @property
    def out_of_graph(self) -> tuple[InputAliasInfo, ...]:
        """The inputs whose new data the wrapper writes back."""
        return tuple(
            info
            for info in self.inputs
            if info.mutates_data
            and info.mutation_type is MutationType.MUTATED_OUT_GRAPH
            and info.base is None
        )

    @property
    def in_graph(self) -> tuple[InputAliasInfo, ...]:
        """The inputs that the graph itself writes to."""
        return tuple(
            info
            for info in self.inputs
            if info.mutation_type is MutationType.MUTATED_IN_GRAPH and info.base is None
        )
