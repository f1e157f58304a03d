"""One computation through all stages: its name in each, its gradient, and what the partition does with it.

Invariant: the field `from_` decides identity; a node whose operator changed is followed by its position in
the chain.
"""

from collections import defaultdict
from dataclasses import dataclass
from functools import cached_property
from itertools import takewhile
from typing import Literal

from aotlens.model.report import RecomputedValue, SavedValue, Stage, StageNode, Target
from aotlens.model.stage_changes import compared, made_from

PARTITION = "partition"
"""The name of the joint program when it is shown with the fate of each node."""

Side = Literal["input", "forward", "backward", "both", "neither"]


@dataclass(frozen=True, slots=True)
class Fate:
    """What the partition does with one node of the joint program."""

    side: Side
    """Where it runs; `both` is recomputed in the backward, `neither` is unused, `input` is an input."""
    saved: SavedValue | None = None
    recomputed: RecomputedValue | None = None


@dataclass(frozen=True, slots=True)
class Step:
    """A computation in one stage."""

    stage: str
    nodes: tuple[str, ...]
    """Its nodes: several where an operator was decomposed, none where the stage does not have it."""
    gradient: tuple[str, ...] = ()
    """Nodes that compute its gradient."""
    gradient_of: tuple[str, ...] = ()
    """For a gradient: the nodes that it is the gradient of."""


class Lineage:
    """The stages of one target and which node comes from which; each map is built when it is first needed."""

    def __init__(self, target: Target) -> None:
        self.target = target
        self._children: dict[str, dict[str, list[str]]] = {}
        self._nodes: dict[str, dict[str, StageNode]] = {}

    @cached_property
    def stages(self) -> dict[str, Stage]:
        """Return the stages that change something, by name."""
        return {stage.name: stage for stage in self.target.stages if stage.same_as is None}

    def parent(self, stage: str) -> str | None:
        """Return the stage that it was made from, without stages that changed nothing; None for the first."""
        return next((name for name in self._earlier(stage) if name in self.stages), None)

    def unchanged(self, stage: str) -> tuple[str, ...]:
        """Return the stages between it and its parent that changed nothing."""
        names = takewhile(lambda name: name not in self.stages, self._earlier(stage))
        return tuple(reversed(tuple(names)))

    def nodes(self, stage: str) -> dict[str, StageNode]:
        if stage not in self._nodes:
            self._nodes[stage] = {node.name: node for node in self.stages[stage].nodes}
        return self._nodes[stage]

    def is_gradient(self, stage: str, name: str) -> bool:
        """Return True if the node belongs to the gradient of its origin, and is not the same computation."""
        if not self.joints or self.joints[0] not in self._chain(stage):
            return False
        return any(
            ancestor in self._differentiating
            for ancestor in self._ancestors_of(stage, self.joints[0], (name,))
        )

    def steps(self, stage: str, name: str) -> tuple[Step, ...]:
        """Return the node of that stage through every stage, in order."""
        return tuple(self.step(stage, name, other) for other in self.stages)

    def step(self, stage: str, name: str, other: str) -> Step:
        """Return the node of one stage in another."""
        of_gradient = self.is_gradient(stage, name)
        shared = self._common(stage, other)
        origin = self.parent(self.joints[0]) if self.joints and not of_gradient else None
        start = origin if origin is not None and origin in self._chain(shared) else shared
        reached = self._descendants_of(start, other, self._ancestors_of(stage, start, (name,)))
        if not reached:
            reached = self._descendants_of(shared, other, self._ancestors_of(stage, shared, (name,)))
        gradient = tuple(node_name for node_name in reached if self.is_gradient(other, node_name))
        rest = tuple(node_name for node_name in reached if node_name not in gradient)
        if of_gradient:
            return Step(other, gradient, gradient_of=rest)
        return Step(other, (name,) if other == stage else rest, gradient)

    def counterpart(self, stage: str, name: str, other: str) -> str | None:
        """Return the same computation in another stage; else its gradient there, else the node that it is the
        gradient of."""
        step = self.step(stage, name, other)
        return next(iter((*step.nodes, *step.gradient, *step.gradient_of)), None)

    @cached_property
    def joints(self) -> tuple[str, ...]:
        """Return the joint program, and the programs that passes made of it."""
        return tuple(name for name in self.stages if name.startswith("joint"))

    @property
    def has_fates(self) -> bool:
        """Return True if each joint node has a fate: not in inference, nor for a log without the joint
        graph."""
        return self.target.partition is not None and bool(self.joints)

    @cached_property
    def fates(self) -> dict[str, Fate]:
        """By node of the last joint program."""
        partition = self.target.partition
        if partition is None or not self.joints:
            return {}
        saved = {value.node: value for value in partition.saved}
        recomputed = {value.node: value for value in partition.recomputed}
        sides = {
            side: {
                name for node in self.stages[side].nodes if node.op != "placeholder" for name in node.from_
            }
            for side in ("forward", "backward")
        }
        return {
            node.name: Fate(_side(node, sides), saved.get(node.name), recomputed.get(node.name))
            for node in self.stages[self.joints[-1]].nodes
            if node.op != "output"
        }

    # Following.

    @cached_property
    def _differentiating(self) -> frozenset[str]:
        """Return the nodes of the joint program that the program before it does not have."""
        joint = self.joints[0]
        comparison = compared(self.target, self.parent(joint) or joint, joint)
        unchanged = comparison.partners if comparison is not None else {}
        return frozenset(
            node.name for node in self.stages[joint].nodes if node.name not in unchanged and node.from_
        )

    def _earlier(self, stage: str) -> tuple[str, ...]:
        """Return the stages that it was made from, the last one first, also those that changed nothing."""
        return made_from(self.target, stage)[1:]

    def _chain(self, stage: str) -> list[str]:
        """Return a stage and those that it was made from, back to the first."""
        return [stage, *(name for name in self._earlier(stage) if name in self.stages)]

    def _common(self, first: str, second: str) -> str:
        """Return the last stage that both were made from, or are."""
        known = set(self._chain(second))
        return next(name for name in self._chain(first) if name in known)

    def _ancestors_of(self, stage: str, to: str, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the nodes of an earlier stage that these come from."""
        for current in self._chain(stage):
            names = tuple(name for name in names if name in self.nodes(current))
            if current == to:
                break
            nodes = self.nodes(current)
            names = tuple(dict.fromkeys(ancestor for name in names for ancestor in nodes[name].from_))
        return names

    def _descendants_of(self, stage: str, to: str, names: tuple[str, ...]) -> tuple[str, ...]:
        """Return the nodes of a later stage that come from these."""
        chain = self._chain(to)
        for current in reversed(chain[: chain.index(stage)]):
            children = self._children_of(current)
            names = tuple(dict.fromkeys(child for name in names for child in children.get(name, ())))
        return names

    def _children_of(self, stage: str) -> dict[str, list[str]]:
        """Return the nodes of a stage by each node of its parent that they come from."""
        if stage not in self._children:
            children: defaultdict[str, list[str]] = defaultdict(list)
            for node in self.stages[stage].nodes:
                for name in node.from_ if node.op != "output" else ():
                    children[name].append(node.name)
            self._children[stage] = dict(children)
        return self._children[stage]


def _side(node: StageNode, sides: dict[str, set[str]]) -> Side:
    if node.op == "placeholder":
        return "input"
    name = node.name
    forward, backward = name in sides["forward"], name in sides["backward"]
    if forward and backward:
        return "both"
    return "forward" if forward else "backward" if backward else "neither"
