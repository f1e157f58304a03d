"""The metadata of one captured function: every mutation and every alias, in AOTAutograd's terms."""

from dataclasses import dataclass
from enum import Enum
from typing import Any

from aotlens.capture.storage import Write
from aotlens.capture.views import ViewStep
from aotlens.ir.program import Node
from aotlens.ir.subclasses import Value


class MutationType(Enum):
    """Where a mutation of an input happens at run time."""

    NOT_MUTATED = "not_mutated"
    MUTATED_IN_GRAPH = "mutated_in_graph"
    MUTATED_OUT_GRAPH = "mutated_out_graph"


class OutputType(Enum):
    """What a result is to the inputs and to the other results."""

    NON_ALIAS = "non_alias"
    ALIAS_OF_INPUT = "alias_of_input"
    IS_INPUT = "is_input"
    ALIAS_OF_INTERMEDIATE_SAVE_AS_OUTPUT = "alias_of_intermediate_save_as_output"
    ALIAS_OF_INTERMEDIATE = "alias_of_intermediate"
    ALIAS_OF_INTERMEDIATE_BASE_IS_USER_OUTPUT = "alias_of_intermediate_base_is_user_output"
    UNSAFE_VIEW_ALIAS = "unsafe_view_alias"
    CUSTOM_FUNCTION_VIEW = "custom_function_view"


@dataclass(frozen=True, slots=True)
class Geometry:
    """Sizes, strides and offset of a tensor on its storage, in elements."""

    size: tuple[Any, ...]
    stride: tuple[Any, ...]
    offset: Any


class AutogradChange(Enum):
    """What the function does to an input's place in autograd."""

    NONE = "none"
    REQUIRES_GRAD = "made to require grad"
    DETACHED = "taken off its history"
    NEW_LEAF = "made a leaf"


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
    """The base is another result."""

    index: int


@dataclass(frozen=True, slots=True)
class ConstantBase:
    """The result is a real tensor that the function has from outside."""

    node: Node


AliasBase = InputBase | IntermediateBaseOf | OutputBase | ConstantBase


@dataclass(frozen=True, slots=True)
class StorageSwap:
    """The storage that an input is given."""

    base: AliasBase
    chain: tuple[ViewStep, ...]
    """The views that lead from the base to what the input looks at."""


@dataclass(frozen=True, slots=True)
class InputAliasInfo:
    """What the function does to one flat input."""

    index: int
    mutation_type: MutationType
    reason: str
    mutates_data: bool = False
    hidden_from_autograd: bool = False
    """Data changes that autograd does not see (`detach`, `.data`): the version counter stays as it was."""
    under_no_grad: bool = False
    """Every write ran with grad mode off."""
    version_bumps: int = 0
    """By how much the function raises the input's version counter."""
    new_geometry: Geometry | None = None
    """The metadata after the call; None when it is not changed."""
    is_view: bool = False
    """Autograd knows the input as a view of a tensor under it, and the graph reads it by that history."""
    metadata_mutated_without_grad: bool = False
    """Every change of the metadata ran with grad mode off."""
    seen_by_autograd: bool = False
    """Whether the new value has a history of its own, so that its gradient arrives as a tangent."""
    value: Value | None = None
    """The new value; None when the data is not mutated.  It is in the input's first geometry, or in the new
    one for an input that is written to after its storage was exchanged."""
    writes: tuple[Write, ...] = ()
    base: int | None = None
    """The input or synthetic base through which the new data reaches it; None when it is written itself."""
    storage_swap: StorageSwap | None = None
    """The storage that the input leaves the function on; None when it keeps its own."""
    autograd: AutogradChange = AutogradChange.NONE
    is_resized: bool = False
    """Whether the caller's tensor must be resized before it can hold the new value."""
    storage_bytes: Any = None
    """The size of the storage after the call; None when it is as it was."""

    @property
    def mutates_storage(self) -> bool:
        """Whether the input's storage is exchanged or resized."""
        return self.storage_swap is not None or self.storage_bytes is not None

    @property
    def mutates_metadata(self) -> bool:
        return self.new_geometry is not None

    @property
    def wrapper_version_bumps(self) -> int:
        """By how much the wrapper raises the version counter, beyond what its own writes raise it."""
        if self.hidden_from_autograd or self.seen_by_autograd:
            return 0
        if self.mutation_type is MutationType.MUTATED_OUT_GRAPH and self.storage_swap is None:
            return 0
        return self.version_bumps

    @property
    def is_mutated(self) -> bool:
        return self.mutates_data or self.mutates_metadata or self.storage_swap is not None

    @property
    def mutates_metadata_or_storage(self) -> bool:
        """Whether the caller's tensor looks at something else afterwards."""
        return self.new_geometry is not None or self.storage_swap is not None


@dataclass(frozen=True, slots=True)
class OutputAliasInfo:
    """What one flat result is, and how the wrapper makes it."""

    index: int
    output_type: OutputType
    reason: str
    value: Any
    """The node that computes it, or a wrapper around such nodes; a plain value for a result that is no
    tensor; None for an alias."""
    base: AliasBase | None = None
    chain: tuple[ViewStep, ...] = ()
    """The views that lead from the base to the result; replayed on each call."""
    geometry: Geometry | None = None
    """Set when the views cannot be replayed and the result is taken by strides instead."""
    same_object_as: int | None = None
    """An earlier result that is the same tensor object."""
    requires_grad: bool = False
    detached_after: int | None = None
    """After how many of the views it is taken off the history of its base (`detach`); what follows are views
    of that.  None where its base is autograd's own.  Views by strides count as one."""
    has_own_version: bool = False
    """It counts its writes apart from its base (`.data`), and autograd is not told of them there."""
    viewed_without_grad: bool = False
    """The view was taken with grad mode off, or before its base was made to require grad, so autograd does
    not start from it."""
    raises_on_use: bool = False
    """The same, or one of several views, and its base was written to since: autograd refuses its use."""
    is_new_leaf: bool = False
    """The function made it require grad itself: a leaf without history."""
    is_alias_leaf: bool = False
    """The same of an alias: it lies in the memory of an input or of another result, and is a leaf."""
    viewed_before_change: bool = False
    """A view of what an input was, taken before the input gets another storage or loses its history."""
    custom_function_input: int | None = None
    """The input that a custom function made the view of; None for all other results."""
    is_custom_function_view: bool = False
    """A custom function made the view, of an intermediate that other results look at too."""
    tensor: Any = None
    """The fake result; None for a plain value."""


@dataclass(frozen=True, slots=True)
class DetachedStorage:
    """Where a tensor lies that has a history apart from all else there."""

    base: AliasBase
    chain: tuple[ViewStep, ...] | None
    """The views that lead from there to the tensor; None when only its strides tell."""
    tensor: Any
    """The fake tensor."""
    has_own_version: bool
    """As `OutputAliasInfo` has it."""
    was_assigned: bool = False
    """Whether the function put the tensor there (`.data`, `set_`)."""


@dataclass(frozen=True, slots=True)
class BaseInfo:
    """An intermediate that several results are views of, returned as a hidden output."""

    value: Value
    tensor: Any
    is_cut_off: bool = False
    """Every result that is a view of it was taken with grad mode off, or is a view of one that was: it
    requires grad, and no gradient ever arrives."""
    without_gradient: bool = False
    """No result that is a view of it carries a gradient."""
    detached_storage: DetachedStorage | None = None
    """Where the caller finds it; None where the graph's own output is handed out."""


@dataclass(frozen=True, slots=True)
class ViewAndMutationMeta:
    """Everything that the later stages must know of mutation and aliasing."""

    inputs: tuple[InputAliasInfo, ...]
    """One per flat input."""
    outputs: tuple[OutputAliasInfo, ...]
    """One per flat result."""
    bases: tuple[BaseInfo, ...]
    grad_mode_after: bool | None
    """Grad mode that the function leaves behind; None when it leaves it as it was."""

    @property
    def out_of_graph(self) -> tuple[InputAliasInfo, ...]:
        """Inputs whose new data the wrapper writes back."""
        return tuple(
            info
            for info in self.inputs
            if info.mutates_data
            and info.mutation_type is MutationType.MUTATED_OUT_GRAPH
            and info.base is None
        )

    @property
    def in_graph(self) -> tuple[InputAliasInfo, ...]:
        """Inputs that the graph writes to itself."""
        return tuple(
            info
            for info in self.inputs
            if info.mutation_type is MutationType.MUTATED_IN_GRAPH and info.base is None
        )


def mutation_placement(
    mutates_data: bool, moved: Geometry | None, seen: bool, keep_mutations: bool
) -> tuple[MutationType, str]:
    """Where the mutation happens, and why, in the user's words."""
    if moved is not None:
        what = "data and sizes or strides" if mutates_data else "sizes or strides"
        return MutationType.MUTATED_OUT_GRAPH, f"{what} change, which only the wrapper can do"
    if seen:
        return (
            MutationType.MUTATED_OUT_GRAPH,
            "autograd must see the new value, so the wrapper writes it back",
        )
    if not keep_mutations:
        return MutationType.MUTATED_OUT_GRAPH, "in-graph mutations are switched off"
    return MutationType.MUTATED_IN_GRAPH, "autograd need not see the change, so the graph writes it"
