"""The report's records of saved values and of memory. Standard library only."""

from dataclasses import dataclass
from typing import Literal

from aotlens.model.source import Phase, Site, Span, Tensor

Owner = Literal["new", "input", "parameter", "output"]
Freedom = Literal["forced", "rule", "choice", "user"]


@dataclass(frozen=True, slots=True)
class Use:
    """A backward node that reads a saved value."""

    node: str
    span: Span | None


@dataclass(frozen=True, slots=True)
class Certificate:
    """Why the solver saves a value, in a form that can be checked."""

    above: str | None
    """The node that recomputing the value would need, and that the backward cannot have for free."""
    above_reason: str
    """The reason, in words: slow to recompute, other random numbers the second time, …"""
    above_span: Span | None
    path: tuple[str, ...]
    """Nodes from `above` to the value, both included, in order."""
    below: str | None
    """A backward node, or a gradient, that needs the value or a value computed from it."""
    below_span: Span | None
    price_bytes: int | None
    """How many more bytes the next cheapest set of values, without this one, saves; None when there is
    none."""
    price_flops: int
    """How many more operations it recomputes; negative for fewer."""
    instead: tuple[str, ...] = ()
    """The values that it saves instead."""
    same_as: str | None = None
    """The node of an identical layer for which the price was computed; None for this value itself."""


SavingKind = Literal["copy", "precision", "mask", "dead"]


@dataclass(frozen=True, slots=True)
class Saving:
    """Bytes of a saved value without information: a smaller form of it would do, or none at all."""

    kind: SavingKind
    """`copy`: saved in two precisions; `precision`: widened before it is saved; `mask`: two values in a
    floating type; `dead`: no gradient depends on it."""
    bytes: int
    """The bytes that the smaller form saves."""
    reason: str
    span: Span | None = None
    """The expression that causes it, where it is not the value's own."""


@dataclass(frozen=True, slots=True)
class SavedValue:
    """A tensor saved by the forward for the backward."""

    node: str
    tensor: Tensor
    bytes: int
    """The memory that saving it takes: 0 when its owner keeps it alive anyway."""
    owner: Owner
    reason: str
    span: Span | None
    used_by: tuple[Use, ...] = ()
    donated: bool = False
    name: str | None = None
    """The user's name for it, where it has one."""
    code: str = ""
    """The reason's code, from the closed list in `aotlens.partition.rules`."""
    freedom: Freedom = "rule"
    """Whether the user can change it: `forced` cannot, a `rule` or a `choice` can, `user` is their own."""
    op: str = ""
    """The operator that computed it: `aten.addmm.default`; empty for an input."""
    overrode: str | None = None
    """Who asked for the opposite and was overruled: `an activation checkpoint`."""
    certificate: Certificate | None = None
    """Set for a choice of the solver."""
    layer: str | None = None
    """The layer of the model that computes it: `blocks.3`; None outside of numbered layers."""
    saving: Saving | None = None
    """The possible saving in it; None where every byte is needed."""
    packs: str | None = None
    """The node that it replaces, where the caller's hook on saved tensors packs that."""


@dataclass(frozen=True, slots=True)
class RecomputedValue:
    """A forward value that the backward recomputes."""

    node: str
    """The node in the backward graph, and in the forward graph where that computes it too."""
    bytes: int
    """The memory that saving it would take."""
    flops: int
    reason: str
    span: Span | None
    code: str = ""
    """The reason's code, from the closed list in `aotlens.partition.rules`."""
    freedom: Freedom = "rule"
    op: str = ""
    in_forward: bool = True
    """Whether the forward graph computes it too; otherwise only the backward needs it."""
    overrode: str | None = None
    """Who asked for the opposite and was overruled: `an activation checkpoint's policy`."""
    layer: str | None = None
    """The layer of the model that computes it: `blocks.3`; None outside of numbered layers."""


@dataclass(frozen=True, slots=True)
class Region:
    """A marked region (`nested_compile_region`) with a gradient: divided once, called at each site."""

    name: str
    reason: str
    sites: tuple[Site, ...]
    """Its calls in the forward."""
    saved: tuple[SavedValue, ...]
    """The saved values of each call; each is among the target's saved values too, once per call."""
    recomputed: tuple[RecomputedValue, ...]


@dataclass(frozen=True, slots=True)
class FrontierPoint:
    """The least work for its bytes: no other choice saves as little and recomputes less."""

    saved_bytes: int
    recompute_flops: int


@dataclass(frozen=True, slots=True)
class Totals:
    """The costs of a choice of saved values."""

    saved_bytes: int
    recompute_flops: int
    peak_bytes: int
    """Predicted, forward and backward together."""


@dataclass(frozen=True, slots=True)
class WhatIf:
    """Another policy's totals, beside those of the one that was compiled."""

    change: str
    """The change as the user wrote it: `recompute:hidden`."""
    before: Totals
    after: Totals
    no_longer_saved: tuple[str, ...] = ()
    newly_saved: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class BudgetResult:
    """The result of a memory budget."""

    asked_bytes: int
    saved_bytes: int
    recompute_flops: int
    bound_flops: int
    """No choice within the budget recomputes less than this."""
    exact: bool
    """Whether the choice is proven to be the cheapest: `bound_flops` is then `recompute_flops`."""
    method: str
    """The method in words."""

    @property
    def gap(self) -> float:
        """By how much the choice may exceed the cheapest, as a share of its work."""
        return 0.0 if self.exact else 1 - self.bound_flops / max(self.recompute_flops, 1)


@dataclass(frozen=True, slots=True)
class OwnChoice:
    """Our solver's choice for a graph that torch partitioned."""

    policy: str
    saved_bytes: int
    recompute_flops: int
    same: tuple[str, ...]
    """Values that both save."""
    only_ours: tuple[str, ...]
    only_torchs: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Partition:
    """Saved values, recomputed values, and the reasons."""

    policy: str
    saved: tuple[SavedValue, ...]
    recomputed: tuple[RecomputedValue, ...]
    saved_bytes: int
    """Bytes that the saved values add: the sum of `saved[].bytes`."""
    frontier: tuple[FrontierPoint, ...] = ()
    """The Pareto frontier, the fewest bytes first."""
    default_bytes: int | None = None
    """The bytes that the policy `default` would save."""
    budget: BudgetResult | None = None
    """Set under the policy `budget`."""
    unbudgeted: Totals | None = None
    """The costs of the same policy without the budget; set under the policy `budget`."""
    larger_budgets: tuple[Totals, ...] = ()
    """The costs with some larger budgets; set under the policy `budget`."""
    what_if: tuple[WhatIf, ...] = ()
    """Answers to `--what-if`."""
    regions: tuple[Region, ...] = ()
    """Marked regions, which are divided apart from the rest."""
    own: OwnChoice | None = None
    """For a graph from a log: our solver's choice for it; None for our own."""
    own_note: str = ""
    """Why our solver was not run on a graph from a log; empty where it was."""
    dead_values: str | None = None
    """The result of searching dead values by numbers; None unless requested."""


LiveKind = Literal[
    "saved",
    "result",
    "gradient",
    "incoming gradient",
    "new value of an input",
    "temporary",
    "working memory",
]


@dataclass(frozen=True, slots=True)
class LiveValue:
    """One storage that is alive at the peak, under the node that allocated it."""

    node: str
    bytes: int
    span: Span | None
    kind: LiveKind = "temporary"
    """Why it is alive: its owner, or `working memory` of the kernel that runs."""
    name: str | None = None
    """The user's name for it, where it has one."""
    made_in: Phase = "forward"
    last: str | None = None
    """The node after which its memory is freed; None if it outlives the backward."""
    last_in: Phase | None = None
    last_span: Span | None = None
    layer: str | None = None
    """The layer of the model that it belongs to; None outside of numbered layers."""


@dataclass(frozen=True, slots=True)
class Memory:
    """Live bytes over forward and backward: memory that the call allocates, without the caller's own."""

    peak_bytes: int
    curve: tuple[tuple[str, int], ...]
    """Live bytes while each node runs: operands, results, its kernel's working memory, and all other live
    values. A gradient that autograd copies for its leaf has a row of its own at the end."""
    live_at_peak: tuple[LiveValue, ...]
    peak_node: str = ""
    peak_phase: Phase = "forward"
    peak_span: Span | None = None
    forward_nodes: int = 0
    """The number of the curve's rows in the forward."""
    held_bytes: int = 0
    """Alive between forward and backward: saved values and results."""
    fused: bool = False
    """Whether generated kernels fuse some of the nodes: values inside of one kernel then take no memory, and
    the peak is lower than the curve's."""
