"""Saved values: which of them count, their totals and their names.

Invariant: only saved values that own memory are counted. A value that an argument, a parameter or an output
keeps alive anyway costs nothing and is counted separately. `view/tabs/saved.py` makes the rows of the tab of
them.
"""

from collections import Counter
from collections.abc import Callable, Collection, Sequence

from aotlens.model.report import Partition, RecomputedValue, SavedValue, Span
from aotlens.model.spans import text_of
from aotlens.view.fold import in_layer
from aotlens.view.names import without_number
from aotlens.view.quantities import counted, human_bytes


def owning(partition: Partition) -> tuple[SavedValue, ...]:
    """Return the saved values that own memory, in the order of the partition."""
    return tuple(value for value in partition.saved if value.bytes)


def unknown_size(partition: Partition) -> tuple[SavedValue, ...]:
    """Return the saved values whose size depends on data."""
    return tuple(value for value in partition.saved if value.owner == "new" and value.tensor.bytes is None)


def alive_anyway(partition: Partition) -> tuple[SavedValue, ...]:
    """Saved values in memory that arguments, parameters and outputs keep alive without them."""
    unknown = unknown_size(partition)
    return tuple(value for value in partition.saved if not value.bytes and value not in unknown)


def alive_anyway_bytes(partition: Partition) -> int:
    return sum(value.tensor.bytes or 0 for value in alive_anyway(partition))


def owning_recomputed(partition: Partition) -> tuple[RecomputedValue, ...]:
    """Recomputed values that would own memory if they were saved: views and scalars cost neither."""
    return tuple(value for value in partition.recomputed if value.bytes)


def saved_total(partition: Partition) -> str:
    """`13.4 MiB in 36 values`."""
    return f"{human_bytes(partition.saved_bytes)} in {counted(len(owning(partition)), 'value')}"


def recomputed_total(partition: Partition) -> str:
    """Return the memory of recomputed values if they were saved: `12.4 MiB in 40 values`."""
    values = owning_recomputed(partition)
    return f"{human_bytes(sum(value.bytes for value in values))} in {counted(len(values), 'value')}"


# Names: a value has the same name everywhere.


def value_name(value: SavedValue | RecomputedValue, text: Callable[[Span], str] = text_of) -> str:
    """Return the user's name for a value, else the expression that computes it, else its node."""
    name = value.name if isinstance(value, SavedValue) else None
    return name or (text(value.span) if value.span else "") or value.node


def same_named(
    values: Sequence[SavedValue] | Sequence[RecomputedValue], text: Callable[[Span], str] = text_of
) -> frozenset[str]:
    """Return the nodes whose name belongs to another value of the same expression and layer as well."""
    names = {value.node: (value.layer, value.span, value_name(value, text)) for value in values}
    shared = Counter(names.values())
    return frozenset(node for node, name in names.items() if shared[name] > 1)


def with_node(name: str, nodes: Collection[str], ambiguous: Collection[str]) -> str:
    """Return `q @ k (clone)` for a value, or the same value of several layers, whose name is ambiguous.

    `nodes` are those of one layer: rows of several nodes of a layer are distinguished by their number.
    """
    first = next(iter(nodes))
    return f"{name} ({first})" if len(nodes) == 1 and first in ambiguous and first != name else name


def name_at_expression(value: SavedValue | RecomputedValue) -> str:
    """Return the user's name, else the node: for text that already shows the expression."""
    return (value.name if isinstance(value, SavedValue) else None) or value.node


def name_with_node(value: SavedValue) -> str:
    """Return `hidden (mm)`; the node alone where the user has no name for it."""
    return f"{value.name} ({value.node})" if value.name and value.name != value.node else value.node


def value_label(value: SavedValue | RecomputedValue, text: Callable[[Span], str] = text_of) -> str:
    """Return the long form, `blocks.3: hidden: gelu in self.mlp(x)`: layer, name, operator and expression."""
    expression = text(value.span) if value.span else ""
    name = value.name if isinstance(value, SavedValue) else None
    if name and "." in name:
        return name
    operator = without_number(value.node)
    label = f"{operator} in {expression}" if expression else operator
    return in_layer(value.layer, f"{name}: {label}" if name and expression else name or label)


def layer_value_name(value: SavedValue, text: Callable[[Span], str]) -> str:
    """Return the name under which identical layers fold."""
    return in_layer(value.layer, value_name(value, text))
