"""The text around a backward that writes to an input of the forward."""

from aotlens.ir.program import Node, Program, writes_input
from aotlens.ir.render import Names
from aotlens.ir.slots import SavedInput
from aotlens.partition.records import Partitioned
from aotlens.partition.rules import is_number
from aotlens.report.sites import site_of
from aotlens.runtime.builder import TextBuilder


def written_in_backward(program: Program | None) -> list[Node]:
    """The nodes that write, each to its first argument."""
    return [node for node in program.nodes if writes_input(node)] if program is not None else []


def find_written(builder: TextBuilder, program: Program, names: Names) -> None:
    """Keep hold of the inputs that are written: the graph lets go of all that it is given."""
    saved = [given.node for given in program.inputs if isinstance(given.slot, SavedInput)]
    tensors = [id(node) for node in saved if not is_number(node)]
    for node in written_in_backward(program):
        target: Node = node.args[0]
        builder.add(f"{names.node(target)} = ctx.saved_tensors[{tensors.index(id(target))}]")


def tell_of_writes(builder: TextBuilder, program: Program, names: Names) -> None:
    """Raise the version counters, which a graph leaves alone."""
    written = written_in_backward(program)
    if not written:
        return
    sites = tuple(site for node in written if (site := site_of(node.origin)) is not None)
    with builder.step("write to inputs in the backward", "the backward changes a saved input", 0, sites):
        for node in written:
            builder.add(f"increment_version({names.node(node.args[0])})")


def refuse_second_write(builder: TextBuilder, parts: Partitioned) -> None:
    """Where the backward is differentiated itself: a write to what requires grad would have to be, too."""
    inputs = {id(given.node): given for given in parts.joint.captured.inputs if given.requires_grad}
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
