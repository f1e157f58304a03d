"""Module text around writes to inputs: version counters after the forward, and writes by the backward.

Invariant: autograd sees each write to an input as in eager.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, cast

from aotlens.analysis.records import InputAliasInfo, MutationType, ViewAndMutationMeta
from aotlens.capture.records import AutogradChange, Captured
from aotlens.capture.storage import index_without_repeats, span_of_writes
from aotlens.ir.origin import sites_of
from aotlens.ir.program import Node, Program, writes_input
from aotlens.ir.render import Names
from aotlens.ir.slots import CurrentInput, SavedInput
from aotlens.partition.records import Partitioned
from aotlens.partition.rules import is_number
from aotlens.runtime.graph_runs import records_nothing
from aotlens.runtime.inference_tensors import LineModes
from aotlens.runtime.module_text import TextBuilder
from aotlens.unsupported import unsupported

SET_VERSION = "torch._C._autograd._unsafe_set_version_counter"
FAR = 1 << 20
"""More than the number of writes that a caller makes to one tensor."""


METADATA_REASON = "sizes or strides of an input change, for which autograd raises the version counter"
VIEW_REASON = "a view of an input changes its sizes or strides, for which autograd raises the version counter"
OVERLAP_REASON = "overlapping inputs are written through their base, which may not raise the counter of each"


def write_versions_before_graphs(builder: TextBuilder, meta: ViewAndMutationMeta, names: list[str]) -> None:
    """Bump the versions of inputs of which only the sizes or strides change, or those of a view of them.

    It happens before the graphs run, so that what they save of such an input stays valid, as in eager.  The
    versions of overlapping inputs are read here, and compared by `write_versions` after the graphs.
    """
    reshaped = [info for info in meta.inputs if info.version_bumps and info.changes_metadata_only]
    viewed = [info for info in meta.inputs if info.version_bumps and not info.is_mutated]
    overlapping = _overlapping_written_back(meta)
    reasons = {METADATA_REASON: reshaped, VIEW_REASON: viewed, OVERLAP_REASON: overlapping}
    if not any(reasons.values()):
        return
    reason = "; ".join(reason for reason, infos in reasons.items() if infos)
    with builder.step("raise version counters before the graphs", reason):
        _increment(builder, [*reshaped, *viewed], names)
        for info in overlapping:
            builder.add(f"version_{info.index} = {names[info.index]}._version")


def write_versions(
    builder: TextBuilder, raised: list[InputAliasInfo], meta: ViewAndMutationMeta, names: list[str]
) -> None:
    """Bump, after the graph, the versions of written inputs, and of overlapping ones still unbumped."""
    _increment(builder, raised, names)
    for info in _overlapping_written_back(meta):
        name = names[info.index]
        with builder.block(f"if {name}._version == version_{info.index}:"):
            _increment(builder, [info], names)


def preserving_version(name: str) -> str:
    """Return the context in which a tensor's version counter does not change."""
    return f"torch.autograd._unsafe_preserve_version_counter({name})"


@contextmanager
def at_other_version(builder: TextBuilder, base: str) -> Iterator[None]:
    """Write lines within that make a view of `base` as if `base` were written to between the view and now.

    Autograd then rejects every use of the view, as in eager.
    """
    builder.add(f"version = {base}._version")
    builder.add(f"{SET_VERSION}(({base},), (version + {FAR},))")
    yield
    builder.add(f"{SET_VERSION}(({base},), (version,))")


def write_data_copy(builder: TextBuilder, parts: Partitioned, info: InputAliasInfo, name: str) -> None:
    """Write the copy of an input's new data to `name`, as autograd must see it."""
    captured = parts.joint.captured
    captured_input = captured.inputs[info.index]
    once = _without_repeats(captured_input.fake)
    line = f"{name}{once}.copy_(updated_{info.index}{once})"
    if info.seen_by_autograd:
        with LineModes(True, captured.inference_mode).block(builder, captured):
            builder.add(line)
    elif captured_input.argument.is_inference():  # eager allows what was recorded
        with builder.block("with torch.inference_mode():"):
            builder.add(line)
    elif info.hidden_from_autograd:
        with builder.block(f"with torch.no_grad(), {preserving_version(name)}:"):
            builder.add(line)
    elif not info.is_view and records_nothing(parts):
        builder.add(line)
    elif info.storage_swap is None and not info.mutates_metadata and captured_input.wrapped is None:
        # what `no_grad` does to a write, at half its cost: autograd sees the version alone
        with builder.block("with below_views():"):
            builder.add(line)
        builder.add(f"increment_version(({name},))")
    else:
        with builder.block("with torch.no_grad():"):
            builder.add(line)


def _without_repeats(tensor: Any) -> str:
    """Return an index that skips repeated elements; empty if there are none."""
    parts = [":1" if part.stop else ":" for part in index_without_repeats(tensor)]
    return f"[{', '.join(parts)}]" if ":1" in parts else ""


def write_geometry_change(
    builder: TextBuilder, captured: Captured, info: InputAliasInfo, target: tuple[str, str]
) -> None:
    """Write a geometry change of an input, as autograd must see it; `target` is its name and the line."""
    name, line = target
    contexts = []
    changes_autograd = info.autograd is not AutogradChange.NONE and not info.seen_by_autograd
    if changes_autograd or info.metadata_mutated_without_grad or _gains_gradient_of_base(captured, info):
        contexts.append("torch.no_grad()")
    elif not captured.grad_enabled:
        contexts.append("torch.enable_grad()")
    counts = not captured.inputs[info.index].argument.is_inference()
    # bumped before the graph ran, or never
    if counts and (info.changes_metadata_only or not info.version_bumps):
        contexts.append(preserving_version(name))
    if captured.inputs[info.index].argument.is_inference():  # eager allows what was recorded
        contexts.append("torch.inference_mode()")
    if not contexts:
        builder.add(line)
        return
    with builder.block(f"with {', '.join(contexts)}:"):
        builder.add(line)
    if (
        info.changes_metadata_only
        and info.metadata_mutated_without_grad
        and not captured.inputs[info.index].is_leaf
    ):
        with at_other_version(builder, name):
            builder.add(f"{name}.grad_fn  # of a view: autograd recreates it for these sizes")


def _gains_gradient_of_base(captured: Captured, info: InputAliasInfo) -> bool:
    """Return True if the input is a view that requires grad only since its base was written to.

    Autograd gives such a view its `grad_fn` when it is next asked for, for the sizes of that moment; until
    then it takes the view for a leaf, of which it rejects a change.
    """
    captured_input = captured.inputs[info.index]
    gains_gradient = captured_input.at_exit.requires_grad and not captured_input.requires_grad
    return info.base is not None and gains_gradient


def check_saved_aliases(parts: Partitioned, infos: list[InputAliasInfo]) -> None:
    """Check inputs whose sizes or strides change, which bumps their versions after the graph.

    Raises:
        UnsupportedError: such an input is a view that is not written to, and the backward saves another input
            on its storage, or their base, whose version would then have changed.
    """
    inputs = parts.joint.captured.inputs
    saved = {id(captured_input.node) for captured_input in parts.saved_inputs}
    for info in infos:
        if not info.is_view or info.mutates_data:
            continue
        captured_input, flat = inputs[info.index], len(parts.joint.captured.flat_inputs)
        for index in (
            *captured_input.shares_storage_with,
            *(() if captured_input.base is None else (captured_input.base,)),
        ):
            if id(inputs[index].node) in saved:
                other = f"`{inputs[index].slot.name}`" if index < flat else "its base"
                raise unsupported(
                    "geometry-change-of-shared-input",
                    span_of_writes(list(info.writes)),
                    input=captured_input.slot.name,
                    other=other,
                )


def _overlapping_written_back(meta: ViewAndMutationMeta) -> list[InputAliasInfo]:
    """Return the written overlapping inputs that get their new data by a write to their base."""
    out_of_graph = MutationType.MUTATED_OUT_GRAPH
    return [
        info
        for info in meta.inputs
        if info.base is not None
        and info.version_bumps
        and info.mutation_type is out_of_graph
        and not info.changes_metadata_only  # raised before the graphs
    ]


def _increment(builder: TextBuilder, infos: list[InputAliasInfo], names: list[str]) -> None:
    each = [names[info.index] for info in infos for _ in range(info.version_bumps)]
    if each:
        builder.add(f"increment_version(({', '.join(each)},))")


def written_in_backward(program: Program | None) -> list[Node]:
    """Return the nodes that write to an input; each writes to its first argument."""
    return [node for node in program.nodes if writes_input(node)] if program is not None else []


def current_input_slots(program: Program | None) -> list[tuple[Node, CurrentInput]]:
    """Return the inputs that the backward takes with their values when it runs."""
    inputs = program.inputs_of(CurrentInput) if program is not None else ()
    return [(item.node, cast(CurrentInput, item.slot)) for item in inputs]


def hold_current_inputs(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """Write in `forward` lines that keep those tensors, and the final versions of saved ones."""
    slots = [slot for _, slot in current_input_slots(parts.backward)]
    if not slots:
        return
    inputs, infos = parts.joint.captured.inputs, parts.joint.meta.inputs
    tensors = [names.node(node) for slot in slots if (node := inputs[slot.index].node) is not None]
    builder.add(f"ctx.now = ({', '.join(tensors)},)")
    final_versions = [
        f"{name}._version + {_remaining_bumps(infos[slot.index])}" if slot.is_saved else "None"
        for name, slot in zip(tensors, slots, strict=True)
    ]
    if any(slot.is_saved for slot in slots):
        builder.add(f"ctx.versions_left = ({', '.join(final_versions)},)")


def _remaining_bumps(info: InputAliasInfo) -> int:
    """Return by how much the call bumps the version after the forward graph has started."""
    out_of_graph = info.mutation_type is MutationType.MUTATED_OUT_GRAPH
    return min(info.version_bumps, 1) if out_of_graph else info.version_bumps


def bind_current_inputs(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """Write in `backward` lines that bind them, and reject those that changed, as eager does."""
    slots = current_input_slots(parts.backward)
    if not slots:
        return
    builder.add(f"{', '.join(names.node(node) for node, _ in slots)}, = ctx.now")
    for index, (node, slot) in enumerate(slots):
        if not slot.is_saved:
            continue
        message = (
            "one of the variables needed for gradient computation has been modified by an inplace "
            f"operation: `{slot.name}`, an input of `{parts.joint.captured.subject.name}`"
        )
        changed = f"{names.node(node)}._version != ctx.versions_left[{index}]"
        builder.raise_if(changed, "RuntimeError", message)


def hold_written_inputs(builder: TextBuilder, program: Program, names: Names) -> None:
    """Keep references to the inputs that are written to: the graph drops all that it takes."""
    saved = program.inputs_of(SavedInput)
    tensors = [id(item.node) for item in saved if not is_number(item.node)]
    current = {id(node) for node, _ in current_input_slots(program)}
    targets: list[Node] = [node.args[0] for node in written_in_backward(program)]
    for target in (candidate for candidate in targets if id(candidate) not in current):
        builder.add(f"{names.node(target)} = ctx.saved_tensors[{tensors.index(id(target))}]")


def bump_written_versions(builder: TextBuilder, parts: Partitioned, program: Program, names: Names) -> None:
    """Bump the version counters as much as eager does; a graph does not touch them."""
    written = written_in_backward(program)
    if not written:
        return
    current = {id(node): f"ctx.now[{index}]" for index, (node, _) in enumerate(current_input_slots(program))}
    sites = sites_of(node.origin for node in written)
    with builder.step("write to inputs in the backward", "the backward changes a saved input", 0, sites):
        for target in (node.args[0] for node in written):
            name = current.get(id(target)) or names.node(target)
            each = [name] * parts.joint.bumps_in_backward.get(id(target), 1)
            builder.add(f"increment_version(({', '.join(each)},))")


def reject_second_write(builder: TextBuilder, parts: Partitioned) -> None:
    """Reject a differentiated backward that writes to an input that requires grad."""
    captured = parts.joint.captured
    inputs = {id(captured_input.node): captured_input for captured_input in captured.inputs}
    inputs |= {id(node): captured.inputs[slot.index] for node, slot in current_input_slots(parts.backward)}
    targets = (inputs.get(id(node.args[0])) for node in written_in_backward(parts.backward))
    written = next((target for target in targets if target is not None and target.requires_grad), None)
    if written is not None:
        message = (
            f"the backward of `{captured.subject.name}` writes to `{written.slot.name}`: aot_autograd does"
            " not support input mutations with requires_grad in backward for create_graph=True"
        )
        builder.add(f"raise RuntimeError({message!r})")
