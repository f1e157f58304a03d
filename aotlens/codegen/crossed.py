"""Writes that cross: an input gets what another one held, which is written to as well (`swap(x, y)`).

Inductor removes the copy that keeps the old value, and then reads what was just written.  Invariant: such a
value is a result of the graph, and is written when the graph has ended.
"""

from typing import Any

from torch import fx

from aotlens.capture.operators import aten
from aotlens.codegen.separate import root_of


def take_out_crossed_writes(module: fx.GraphModule) -> tuple[int, ...]:
    """Have the graph return such values after its other results; the positions of the inputs they go to."""
    graph = module.graph
    inputs = {node: at for at, node in enumerate(graph.find_nodes(op="placeholder"))}
    written: set[fx.Node] = set()
    crossed: list[fx.Node] = []
    for write in graph.find_nodes(op="call_function", target=aten.copy_.default):
        target, value = write.args[:2]
        if target in inputs and root_of(value) in written - {target}:
            crossed.append(write)
        written.add(target)
    if not crossed:
        return ()
    output = graph.output_node()
    results: Any = output.args[0]
    output.update_arg(0, (*results, *(write.args[1] for write in crossed)))
    positions = tuple(inputs[write.args[0]] for write in crossed)
    for write in crossed:
        graph.erase_node(write)
    module.recompile()
    return positions
