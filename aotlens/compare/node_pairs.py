"""Pairs the nodes of two programs without regard to their names.

Nodes are paired in order by their operation (operator, arguments that are no nodes, type of the result) and
their line; the rest by their inputs. So an insertion shifts no other node.

Invariant: each node is in one pair at most, and a pair has the same operator.
"""

import re
from collections.abc import Callable, Hashable, Iterator
from dataclasses import dataclass

from aotlens.compare.alignment import aligned
from aotlens.compare.line_pairs import LinePairs
from aotlens.model.report import Span, Stage, StageNode
from aotlens.view.program_text import node_texts

__all__ = ["NodePairs", "pair_nodes"]

_NAME = re.compile(r"""'[^']*'|"[^"]*"|(?<![\w.])[A-Za-z_]\w*(?!\w|=)""")
"""A name that may be a node's; strings match as a whole, keywords and attributes do not match."""


@dataclass(frozen=True, slots=True)
class NodePairs:
    """Two programs, node by node."""

    pairs: tuple[tuple[StageNode, StageNode], ...]
    """Old and new, in the order of the new program."""
    removed: tuple[StageNode, ...]
    added: tuple[StageNode, ...]
    changed: tuple[tuple[StageNode, StageNode, str], ...]
    """Pairs that do something else, and what: another result, other arguments, another value read."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A node in the form that is compared."""

    node: StageNode
    line: Hashable
    arguments: str
    """The arguments of the call: known values by their old names, and `·` for every other node."""
    constants: str
    """The same with `·` for every node."""

    @property
    def exact(self) -> Hashable:
        tensor = self.node.tensor
        return self.node.target, self.line, self.arguments, tensor.short() if tensor else None

    @property
    def rough(self) -> Hashable:
        return self.node.target, self.line

    @property
    def operation_key(self) -> Hashable:
        return self.node.target, self.arguments


def pair_nodes(old: Stage, new: Stage, inputs: dict[str, str], lines: LinePairs) -> NodePairs:
    """Pair the operators; `inputs` has the old names of known values by their new ones.

    Known values are the user's inputs, and for a backward the values of its forward.
    """
    before = _items(old, {name: name for name in inputs.values()}, lines.of_old)
    after = _items(new, inputs, lines.of_new)
    return _Pairing(before, after, inputs).result()


def _items(stage: Stage, inputs: dict[str, str], line: Callable[[Span | None], object]) -> list[_Item]:
    texts = node_texts(stage)
    nodes = {node.name for node in stage.nodes}

    def arguments(node: StageNode, known: dict[str, str]) -> str:
        def canonical(match: re.Match[str]) -> str:
            return known.get(match.group(), "·") if match.group() in nodes else match.group()

        text = texts.get(node.name)
        return _NAME.sub(canonical, text.value) if text is not None else ""

    return [
        _Item(node, line(node.spans[0] if node.spans else None), arguments(node, inputs), arguments(node, {}))
        for node in stage.nodes
        if node.op == "call_function"
    ]


class _Pairing:
    """Pairs in three passes, the surest first."""

    def __init__(self, old: list[_Item], new: list[_Item], inputs: dict[str, str]) -> None:
        self._old, self._new = old, new
        self._inputs = inputs
        self._partner: dict[int, int] = {}
        """By index in the new program: the index in the old one."""

    def result(self) -> NodePairs:
        self._align(lambda item: item.exact)
        self._align(lambda item: item.rough)
        self._pair_by_operands()
        paired = set(self._partner.values())
        return NodePairs(
            tuple(
                (self._old[self._partner[index]].node, self._new[index].node)
                for index in sorted(self._partner)
            ),
            tuple(item.node for index, item in enumerate(self._old) if index not in paired),
            tuple(item.node for index, item in enumerate(self._new) if index not in self._partner),
            tuple(self._changed()),
        )

    def _align(self, key: Callable[[_Item], Hashable]) -> None:
        """Pair nodes with equal keys between two existing pairs."""
        fixed = [*self._rising(), (len(self._old), len(self._new))]
        old_start, new_start = 0, 0
        paired = set(self._partner.values())
        for old_end, new_end in fixed:
            old = [index for index in range(old_start, old_end) if index not in paired]
            new = [index for index in range(new_start, new_end) if index not in self._partner]
            for left, right in aligned([key(self._old[i]) for i in old], [key(self._new[i]) for i in new]):
                self._partner[new[right]] = old[left]
            old_start, new_start = old_end + 1, new_end + 1

    def _rising(self) -> list[tuple[int, int]]:
        return sorted((old, new) for new, old in self._partner.items())

    def _pair_by_operands(self) -> None:
        """Pair the rest where operator, arguments and all operands are the same, at any position."""
        paired = set(self._partner.values())
        free: dict[Hashable, list[int]] = {}
        for index, item in enumerate(self._old):
            if index not in paired:
                free.setdefault((item.operation_key, item.node.inputs), []).append(index)
        known = self._names()
        for index, item in enumerate(self._new):
            if index in self._partner or not free:
                continue
            operands = tuple(known.get(name, "") for name in item.node.inputs)
            same = free.get((item.operation_key, operands))
            if same:
                self._partner[index] = same.pop(0)
                known[item.node.name] = self._old[self._partner[index]].node.name

    def _names(self) -> dict[str, str]:
        """Old names by new ones."""
        pairs = {self._new[new].node.name: self._old[old].node.name for new, old in self._partner.items()}
        return self._inputs | pairs

    def _changed(self) -> Iterator[tuple[StageNode, StageNode, str]]:
        names = self._names()
        known = set(names.values())
        for index in sorted(self._partner):
            old, new = self._old[self._partner[index]], self._new[index]
            what = _result_change(old.node, new.node)
            if not what and old.constants != new.constants:
                what = f"`{old.constants}` became `{new.constants}`"
            if not what and _reads_another(old.node, new.node, names, known):
                what = "reads another value"
            if what:
                yield old.node, new.node, what


def _result_change(old: StageNode, new: StageNode) -> str:
    before, after = old.tensor, new.tensor
    if before is None or after is None or before.short() == after.short():
        return ""
    return f"{before.short()} became {after.short()}"


def _reads_another(old: StageNode, new: StageNode, names: dict[str, str], known: set[str]) -> bool:
    """Return True if an operand is another value that both programs have; new values are reported
    themselves."""
    if len(old.inputs) != len(new.inputs):
        return False
    pairs = zip(old.inputs, new.inputs, strict=True)
    return any(after in names and before in known and names[after] != before for before, after in pairs)
