"""The text that raises version counters, so that autograd sees each write as in eager.

Invariant: what the graph saves for the backward has the version that the call leaves, unless eager's would
not have it either.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from aotlens.analysis.inputs import span_of_writes
from aotlens.analysis.records import InputAliasInfo, MutationType, ViewAndMutationMeta
from aotlens.errors import UnsupportedError
from aotlens.partition.records import Partitioned
from aotlens.runtime.builder import TextBuilder

SET_VERSION = "torch._C._autograd._unsafe_set_version_counter"
FAR = 1 << 20
"""More writes than a caller makes to one tensor."""


def write_versions_of_unwritten(builder: TextBuilder, meta: ViewAndMutationMeta, names: list[str]) -> None:
    """Before the graph runs: inputs of which only a view changes its sizes or strides."""
    raised = [
        info for info in meta.inputs if info.version_bumps and (not info.is_changed or only_moved(info))
    ]
    joined = _joined_outside(meta)
    if not raised and not joined:
        return
    reason = "a view of the input changes its sizes or strides, which autograd counts as a change"
    with builder.step("raise versions of unwritten inputs", reason):
        _increment(builder, raised, names)
        for info in joined:
            builder.add(f"version_{info.index} = {names[info.index]}._version")


def only_moved(info: InputAliasInfo) -> bool:
    """Whether only the tensor's sizes or strides change: what the graph saves of it keeps its values."""
    moved = info.mutates_metadata and not info.mutates_data and info.exchange is None
    return moved and not info.is_view  # a raised version makes autograd look for a view's history anew


def write_versions(
    builder: TextBuilder, raised: list[InputAliasInfo], meta: ViewAndMutationMeta, names: list[str]
) -> None:
    """After the graph: inputs that it wrote to, and overlapping ones whose base did not raise theirs."""
    _increment(builder, raised, names)
    for info in _joined_outside(meta):
        name = names[info.index]
        with builder.block(f"if {name}._version == version_{info.index}:"):
            _increment(builder, [info], names)


@contextmanager
def at_other_version(builder: TextBuilder, base: str) -> Iterator[None]:
    """Within it, lines make a view of `base` as if `base` were written to between the view and now.

    Autograd then refuses every use of the view, as it does in eager.
    """
    builder.add(f"version = {base}._version")
    builder.add(f"{SET_VERSION}(({base},), (version + {FAR},))")
    yield
    builder.add(f"{SET_VERSION}(({base},), (version,))")


def refuse_saved_beside(parts: Partitioned, moved: list[InputAliasInfo]) -> None:
    """Call it for the inputs whose sizes or strides change, which raises their versions after the graph.

    Raises:
        UnsupportedError: one is a view of which only the sizes or strides change, and the backward is given
            another input on its memory, or their base, whose version it then finds changed.
    """
    inputs = parts.joint.captured.inputs
    saved = {id(given.node) for given in parts.saved_inputs}
    for info in moved:
        if not info.is_view or info.mutates_data:
            continue
        given, flat = inputs[info.index], len(parts.joint.captured.flat_inputs)
        for at in (*given.shares_storage_with, *(() if given.base is None else (given.base,))):
            if id(inputs[at].node) in saved:
                other = f"`{inputs[at].slot.name}`" if at < flat else "what it is a view of"
                raise UnsupportedError(
                    f"a change of the sizes or strides of `{given.slot.name}`, which is read "
                    f"and shares memory with {other}, of which the backward needs the values",
                    span_of_writes(list(info.writes)),
                    "take another view instead",
                )


def _joined_outside(meta: ViewAndMutationMeta) -> list[InputAliasInfo]:
    """Overlapping inputs that were written and get the new data by a write to their base."""
    outside = MutationType.MUTATED_OUT_GRAPH
    return [
        info
        for info in meta.inputs
        if info.base is not None and info.version_bumps and info.mutation_type is outside
    ]


def _increment(builder: TextBuilder, infos: list[InputAliasInfo], names: list[str]) -> None:
    each = [names[info.index] for info in infos for _ in range(info.version_bumps)]
    if each:
        builder.add(f"increment_version(({', '.join(each)},))")
