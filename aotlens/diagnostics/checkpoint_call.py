"""The call that saves the most memory as an activation checkpoint.

Invariant: an estimate from the graphs alone. A checkpoint frees values that only the call itself, and its
backward, reads; the inputs of the call are saved instead, and the values of one call exist again while its
backward runs.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property

from aotlens.diagnostics.checkpoint_edit import can_be_checkpointed
from aotlens.model.report import SavedValue, Span, StageNode, Target

LEAST_SHARE = 0.1
"""The least share of all saved bytes by which a checkpoint must lower the peak to be worth its work."""

VIEWS = frozenset(
    {
        "aten._unsafe_view",
        "aten.alias",
        "aten.as_strided",
        "aten.detach",
        "aten.diagonal",
        "aten.expand",
        "aten.permute",
        "aten.reshape",
        "aten.select",
        "aten.slice",
        "aten.split",
        "aten.split_with_sizes",
        "aten.squeeze",
        "aten.t",
        "aten.transpose",
        "aten.unbind",
        "aten.unfold",
        "aten.unsqueeze",
        "aten.view",
    }
)
RANDOM = ("aten.bernoulli", "aten.rand", "aten.native_dropout", "aten.normal", "aten.uniform", "aten.rrelu")
UNSAFE = ("aten.copy_", "aten._native_batch_norm_legit_functional", "aten.resize", "inductor.resize")
"""Operators whose effect would happen twice in eager if the call ran again."""


@dataclass(frozen=True, slots=True)
class Advice:
    """One call, and the effect of a checkpoint around it."""

    span: Span
    """The call expression; each of its calls becomes a checkpoint."""
    no_longer_saved: frozenset[str]
    """Nodes of the values that would not be saved."""
    saved_bytes: int
    """All saved bytes with the checkpoint."""
    peak_bytes: int
    """Saved bytes, and those of the one recomputed call, at the worst moment of the backward."""


def best_call(target: Target) -> Advice | None:
    """Return the call whose checkpoint lowers the peak the most; None where none is worth it."""
    if target.partition is None:
        return None
    flow = _Flow(target)
    total = sum(value.bytes for value in flow.saved.values())
    candidates = [advice for span in flow.calls() if (advice := flow.advice(span)) is not None]
    best = min(candidates, key=lambda advice: advice.peak_bytes, default=None)
    return best if best is not None and total - best.peak_bytes >= LEAST_SHARE * total else None


def checkpoint_candidates(target: Target) -> tuple[Advice, ...]:
    """Return every call that may become a checkpoint, with its effect."""
    if target.partition is None:
        return ()
    flow = _Flow(target)
    return tuple(advice for span in flow.calls() if (advice := flow.advice(span)) is not None)


class _Flow:
    """The forward graph with its saved values, and the users of each node."""

    def __init__(self, target: Target) -> None:
        assert target.partition is not None  # called for training only
        forward, backward = target.stage("forward"), target.stage("backward")
        self.nodes: tuple[StageNode, ...] = forward.nodes if forward is not None else ()
        self.index_of = {node.name: index for index, node in enumerate(self.nodes)}
        self.saved: dict[str, SavedValue] = {
            value.node: value
            for value in target.partition.saved
            if value.bytes and value.node in self.index_of
        }
        self.backward_spans = {node.name: node.spans for node in (backward.nodes if backward else ())}
        self.mutating_spans = frozenset(site.span for entry in target.inputs for site in entry.sites)

    @cached_property
    def nodes_within(self) -> dict[Span, list[int]]:
        """Return by expression the positions of the nodes that run within it."""
        positions: dict[Span, list[int]] = {}
        for index, node in enumerate(self.nodes):
            for span in dict.fromkeys(node.spans):
                positions.setdefault(span, []).append(index)
        return positions

    @cached_property
    def readers(self) -> dict[str, list[int]]:
        """Return the positions of the nodes that read a value or a view of it."""
        positions: dict[str, list[int]] = {node.name: [] for node in self.nodes}
        for index, node in enumerate(self.nodes):
            if node.op == "output":  # returns results, and the saved values themselves
                continue
            for name in {self.root(name) for name in node.inputs if name in positions}:
                positions[name].append(index)
        return positions

    def root(self, name: str) -> str:
        """Return the value that owns a value's storage."""
        node = self.nodes[self.index_of[name]]
        while _is_view(node) and node.inputs and node.inputs[0] in self.index_of:
            node = self.nodes[self.index_of[node.inputs[0]]]
        return node.name

    def calls(self) -> Iterator[Span]:
        """Yield the calls that computed saved values and may be wrapped."""
        spans = dict.fromkeys(span for name in self.saved for span in self.nodes[self.index_of[name]].spans)
        return (span for span in spans if can_be_checkpointed(span))

    def advice(self, span: Span) -> Advice | None:
        """Return the effect of a checkpoint around this call; None where the call must not run twice."""
        inside = self.nodes_within[span]
        if any(self._is_unsafe(self.nodes[index]) for index in inside):
            return None
        runs = list(self._runs(span, inside))
        not_saved = [self._no_longer_saved(span, run) for run in runs]
        gone = frozenset().union(*not_saved)
        still_saved = {name: value.bytes for name, value in self.saved.items() if name not in gone}
        for run in runs:
            still_saved |= {name: size for name, size in self._entering(run) if name not in self.saved}
        total = sum(still_saved.values())
        moments = [
            sum(size for name, size in still_saved.items() if self.index_of[name] <= run[-1])
            + sum(self.saved[name].bytes for name in names)
            for run, names in zip(runs, not_saved, strict=True)
        ]
        return Advice(span, gone, total, max([total, *moments]))

    def _is_unsafe(self, node: StageNode) -> bool:
        return node.target.startswith(UNSAFE) or any(span in self.mutating_spans for span in node.spans)

    def _runs(self, span: Span, inside: list[int]) -> Iterator[list[int]]:
        """Yield the nodes of each run of the call: by caller, then by repetition."""
        groups: dict[tuple[Span, ...], list[int]] = {}
        for index in inside:
            spans = self.nodes[index].spans
            groups.setdefault(spans[spans.index(span) + 1 :], []).append(index)
        for group in groups.values():
            step = _period([(self.nodes[index].spans, self.nodes[index].target) for index in group])
            yield from (group[first : first + step] for first in range(0, len(group), step))

    def _no_longer_saved(self, span: Span, run: list[int]) -> frozenset[str]:
        own = frozenset(run)
        return frozenset(
            name
            for index in run
            if (name := self.nodes[index].name) in self.saved
            and not self._is_random(self.nodes[index])
            and own.issuperset(self.readers[self.root(name)])
            and all(span in self.backward_spans.get(use.node, (span,)) for use in self.saved[name].used_by)
        )

    def _is_random(self, node: StageNode) -> bool:
        """Return True for a random value, or a view or cast of one: it is saved in any case."""
        sources = [self.nodes[self.index_of[name]].target for name in node.inputs if name in self.index_of]
        return any(target.startswith(RANDOM) for target in (node.target, *sources))

    def _entering(self, run: list[int]) -> Iterator[tuple[str, int]]:
        """Yield the results of other calls that the call reads."""
        own = {self.nodes[index].name for index in run}
        names = {
            self.root(name) for index in run for name in self.nodes[index].inputs if name in self.index_of
        }
        for name in sorted(names - own):
            node = self.nodes[self.index_of[name]]
            if node.op == "call_function" and node.tensor is not None:
                yield name, node.tensor.bytes or 0


def _is_view(node: StageNode) -> bool:
    return ".".join(node.target.split(".")[:2]) in VIEWS


def _period(keys: Iterable[object]) -> int:
    """Return the length of the shortest part that the sequence repeats."""
    sequence = list(keys)
    for step in range(1, len(sequence) // 2 + 1):
        if len(sequence) % step == 0 and sequence[step:] == sequence[:-step]:
            return step
    return max(len(sequence), 1)
