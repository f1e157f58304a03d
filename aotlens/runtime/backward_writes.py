"""The text around a backward that writes to an input of the forward."""

from aotlens.analysis.records import InputAliasInfo, MutationType
from aotlens.build.describe import site_of
from aotlens.ir.program import Node, Program, writes_input
from aotlens.ir.render import Names
from aotlens.ir.slots import CurrentInput, SavedInput
from aotlens.partition.records import Partitioned
from aotlens.partition.rules import is_number
from aotlens.runtime.builder import TextBuilder


def written_in_backward(program: Program | None) -> list[Node]:
    """The nodes that write, each to its first argument."""
    return [node for node in program.nodes if writes_input(node)] if program is not None else []


def current_inputs(program: Program | None) -> list[tuple[Node, CurrentInput]]:
    """The inputs that the backward takes as they are when it runs."""
    given = program.inputs if program is not None else ()
    return [(item.node, item.slot) for item in given if isinstance(item.slot, CurrentInput)]


def keep_current(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """In `forward`: hold those tensors, and the versions that the call leaves of what autograd saves."""
    found = [slot for _, slot in current_inputs(parts.backward)]
    if not found:
        return
    inputs, infos = parts.joint.captured.inputs, parts.joint.meta.inputs
    held = [names.node(node) for slot in found if (node := inputs[slot.index].node) is not None]
    builder.add(f"ctx.now = ({', '.join(held)},)")
    left = [
        f"{name}._version + {_bumps_left(infos[slot.index])}" if slot.is_saved else "None"
        for name, slot in zip(held, found, strict=True)
    ]
    if any(slot.is_saved for slot in found):
        builder.add(f"ctx.versions_left = ({', '.join(left)},)")


def _bumps_left(info: InputAliasInfo) -> int:
    """By how much the call raises the version counter after the forward graph has begun."""
    outside = info.mutation_type is MutationType.MUTATED_OUT_GRAPH
    return min(info.version_bumps, 1) if outside else info.version_bumps


def find_current(builder: TextBuilder, parts: Partitioned, names: Names) -> None:
    """In `backward`: bind them, and refuse what has changed where eager does."""
    found = current_inputs(parts.backward)
    if not found:
        return
    builder.add(f"{', '.join(names.node(node) for node, _ in found)}, = ctx.now")
    for at, (node, slot) in enumerate(found):
        if not slot.is_saved:
            continue
        with builder.block(f"if {names.node(node)}._version != ctx.versions_left[{at}]:"):
            message = (
                "one of the variables needed for gradient computation has been modified by an inplace "
                f"operation: `{slot.name}`, an input of `{parts.joint.captured.subject.name}`"
            )
            builder.add(f"raise RuntimeError({message!r})")


def find_written(builder: TextBuilder, program: Program, names: Names) -> None:
    """Keep hold of the inputs that are written: the graph lets go of all that it is given."""
    saved = [given.node for given in program.inputs if isinstance(given.slot, SavedInput)]
    tensors = [id(node) for node in saved if not is_number(node)]
    current = {id(node) for node, _ in current_inputs(program)}
    targets: list[Node] = [node.args[0] for node in written_in_backward(program)]
    for target in (one for one in targets if id(one) not in current):
        builder.add(f"{names.node(target)} = ctx.saved_tensors[{tensors.index(id(target))}]")


def tell_of_writes(builder: TextBuilder, parts: Partitioned, program: Program, names: Names) -> None:
    """Raise the version counters, which a graph leaves alone, by as much as eager does."""
    written = written_in_backward(program)
    if not written:
        return
    current = {id(node): f"ctx.now[{at}]" for at, (node, _) in enumerate(current_inputs(program))}
    sites = tuple(site for node in written if (site := site_of(node.origin)) is not None)
    with builder.step("write to inputs in the backward", "the backward changes a saved input", 0, sites):
        for target in (node.args[0] for node in written):
            name = current.get(id(target)) or names.node(target)
            each = [name] * parts.joint.bumps_in_backward.get(id(target), 1)
            builder.add(f"increment_version(({', '.join(each)},))")


def refuse_second_write(builder: TextBuilder, parts: Partitioned) -> None:
    """Where the backward is differentiated itself: a write to what requires grad would have to be, too."""
    captured = parts.joint.captured
    inputs = {id(given.node): given for given in captured.inputs if given.requires_grad}
    inputs |= {
        id(node): captured.inputs[slot.index]
        for node, slot in current_inputs(parts.backward)
        if captured.inputs[slot.index].requires_grad
    }
    for node in written_in_backward(parts.backward):
        given = inputs.get(id(node.args[0]))
        if given is None:
            continue
        message = (
            f"the backward of `{parts.joint.captured.subject.name}` writes to `{given.slot.name}`: "
            "aot_autograd does not support input mutations with requires_grad in backward for "
            "create_graph=True"
        )
        builder.add(f"raise RuntimeError({message!r})")
        return
