"""Module text around version counters, and around writes to inputs by the backward.

Invariant: autograd sees each write to an input as in eager.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import cast

from aotlens.analysis.records import InputAliasInfo, MutationType
from aotlens.ir.origin import sites_of
from aotlens.ir.program import Node, Program, writes_input
from aotlens.ir.render import Names
from aotlens.ir.slots import CurrentInput, SavedInput
from aotlens.partition.records import Partitioned
from aotlens.partition.rules import is_number
from aotlens.runtime.module_text import TextBuilder

SET_VERSION = "torch._C._autograd._unsafe_set_version_counter"
FAR = 1 << 20
"""More than the number of writes that a caller makes to one tensor."""


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
    held = [names.node(node) for slot in slots if (node := inputs[slot.index].node) is not None]
    builder.add(f"ctx.now = ({', '.join(held)},)")
    final_versions = [
        f"{name}._version + {_remaining_bumps(infos[slot.index])}" if slot.is_saved else "None"
        for name, slot in zip(held, slots, strict=True)
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
