"""What the function did to each input.

Invariant: eager's own bookkeeping on the fake tensors (tape, version counter, sizes) is the evidence; no
rule about single operators stands here.
"""

from typing import Any

from aotlens.analysis.records import Geometry, InputAliasInfo, MutationType
from aotlens.capture.records import Captured, CapturedInput
from aotlens.errors import UnsupportedError

FOREACH = "aten._foreach_"
"""In eager such an operator raises the version counters by single writes; as one operator it raises none."""


def geometry_of(tensor: Any) -> Geometry:
    return Geometry(tuple(tensor.shape), tuple(tensor.stride()), tensor.storage_offset())


def analyse_inputs(captured: Captured, keep_mutations: bool) -> tuple[InputAliasInfo, ...]:
    """One record per flat input.

    Raises:
        UnsupportedError: the input's storage was exchanged, or it was made to require grad.
    """
    return tuple(
        _analyse(captured, index, given, keep_mutations) for index, given in enumerate(captured.inputs)
    )


def _analyse(captured: Captured, index: int, given: CapturedInput, keep_mutations: bool) -> InputAliasInfo:
    if not given.is_tensor or given.duplicate_of is not None or given.storage is None:
        return InputAliasInfo(index, MutationType.NOT_MUTATED, "not written to")
    storage = given.storage
    _refuse_storage_exchange(captured, given)
    mutates_data = storage.version > 0 and storage.base is not given.node
    moved = _moved(given)
    if not mutates_data and moved is None:
        return InputAliasInfo(index, MutationType.NOT_MUTATED, "not written to")
    written = given if given.base is None else captured.inputs[given.base]
    seen = written.argument.grad_fn is not written.grad_fn
    bumps = 0 if given.argument.is_inference() else given.argument._version - given.version
    bumps += sum(write.origin.op.startswith(FOREACH) for write in storage.writes)
    hidden = mutates_data and bumps == 0
    no_grad = mutates_data and all(not write.grad_enabled for write in storage.writes)
    mutation_type, reason = _placement(mutates_data, _moved(written), seen, keep_mutations)
    return InputAliasInfo(
        index=index,
        mutation_type=mutation_type,
        reason=_base_reason(captured, index) or reason,
        base=given.base,
        mutates_data=mutates_data,
        hidden_from_autograd=hidden,
        under_no_grad=no_grad,
        version_bumps=_writes_through(captured, index) if bumps and len(storage.joined) else bumps,
        new_geometry=moved,
        seen_by_autograd=seen and mutates_data,
        value=storage.base if mutates_data else None,
        writes=(*storage.writes, *(storage.moves if moved is not None else ())),
    )


def _moved(given: CapturedInput) -> Geometry | None:
    """The metadata that the function leaves; None when it is as it was."""
    geometry = geometry_of(given.argument)
    return geometry if geometry != geometry_of(given.fake) else None


def _writes_through(captured: Captured, index: int) -> int:
    """How many writes went through an overlapping input, or a view of it, and not through a nearer one."""
    recorder, storage = captured.recorder, captured.inputs[index].storage
    assert storage is not None  # it was written
    on_it = [at for at, given in enumerate(captured.inputs) if given.storage is storage]
    chains = {at: recorder.tracked(captured.inputs[at].argument).chain for at in on_it}
    count = 0
    for write in storage.writes:
        through = [at for at in on_it if write.chain[: len(chains[at])] == chains[at]]
        count += max(through, key=lambda at: len(chains[at]), default=None) == index
    return count


def _base_reason(captured: Captured, index: int) -> str:
    """Why an input changes with others; empty when it has no synthetic base."""
    for base in captured.bases:
        if index in base.members:
            others = ", ".join(f"`{captured.inputs[at].slot.name}`" for at in base.members if at != index)
            return f"overlaps {others}: the graph writes to the synthetic base of them"
    return ""


def _placement(
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


def _refuse_storage_exchange(captured: Captured, given: CapturedInput) -> None:
    span = captured.subject.span
    if given.argument.untyped_storage()._cdata != given.fake.untyped_storage()._cdata:
        raise UnsupportedError(
            f"storage mutation of `{given.slot.name}` (`set_` or an assignment to `.data`)",
            span,
            "return the new tensor instead",
        )
    if given.argument.requires_grad and not given.requires_grad and given.argument.is_leaf:
        raise UnsupportedError(
            f"`requires_grad_()` on the input `{given.slot.name}`", span, "set it before the call"
        )
    if given.requires_grad and not given.argument.requires_grad:
        raise UnsupportedError(
            f"`requires_grad_(False)` or `detach_()` on the input `{given.slot.name}`", span, "use `detach()`"
        )
