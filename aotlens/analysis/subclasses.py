"""Analysis of inputs that are tensor subclasses.

Invariant: autograd's evidence is read from the wrapper, new values from its inner tensors.
"""

from aotlens.analysis.records import InputAliasInfo, MutationType, mutation_placement
from aotlens.capture.builder import Builder
from aotlens.capture.records import Captured, CapturedInput
from aotlens.capture.subclasses import value_like
from aotlens.ir.subclasses import Wrapped
from aotlens.unsupported import unsupported


def analyse_wrapper(
    captured: Captured, builder: Builder, index: int, before: Wrapped, keep_mutations: bool
) -> InputAliasInfo:
    """Describe one wrapper.

    Raises:
        UnsupportedError: its sizes or strides change, or whether it requires grad.
    """
    captured_input = captured.inputs[index]
    _check_metadata(captured, captured_input)
    value = value_like(builder, captured_input.argument, before)
    if value.nodes() == before.nodes():
        return InputAliasInfo(index, MutationType.NOT_MUTATED, "not written to")
    storages = captured.recorded.inner_storages(captured_input.argument)
    writes = tuple(write for storage in storages for write in storage.writes)
    seen_by_autograd = captured_input.argument.grad_fn is not captured_input.grad_fn
    bumps = (
        0
        if captured_input.argument.is_inference()
        else captured_input.argument._version - captured_input.version
    )
    mutation_type, reason = mutation_placement(True, None, seen_by_autograd, keep_mutations)
    return InputAliasInfo(
        index=index,
        mutation_type=mutation_type,
        reason=reason,
        mutates_data=True,
        hidden_from_autograd=bumps == 0,
        under_no_grad=all(not write.grad_enabled for write in writes),
        version_bumps=bumps,
        seen_by_autograd=seen_by_autograd,
        value=value,
        writes=writes,
    )


def _check_metadata(captured: Captured, captured_input: CapturedInput) -> None:
    argument, name = captured_input.argument, captured_input.slot.name
    storage = captured.recorded.tracked(argument).storage
    span = (
        storage.metadata_mutations[-1].origin.location.innermost
        if storage.metadata_mutations
        else captured.subject.span
    )
    if argument.shape != captured_input.fake.shape or argument.stride() != captured_input.fake.stride():
        raise unsupported("metadata-mutation-of-subclass", span, input=name, type=type(argument).__name__)
    if argument.requires_grad != captured_input.requires_grad and (
        argument.is_leaf or captured_input.requires_grad
    ):
        raise unsupported("requires-grad-of-subclass", span, input=name)
