"""What stands around the code that Inductor makes of a graph, for any device.

Invariant: Inductor gets the graph without what it would get wrong, and the code that is called does the rest.
"""

from typing import Any

from torch import fx

from aotlens.codegen.around_text import Around
from aotlens.codegen.crossed import take_out_crossed_writes
from aotlens.codegen.loop_sizes import give_sizes_to_loops
from aotlens.codegen.negated import spell_out_negation, take_lazy_from_results
from aotlens.codegen.permuted import take_rows_unchecked
from aotlens.codegen.separate import (
    copies_of_one,
    doubtful_results,
    memory_of_results,
    results_of_writes,
    views_of_results,
)
from aotlens.codegen.tokens import thread_token
from aotlens.codegen.unread_states import draw_without_state
from aotlens.ir.program import Program
from aotlens.ir.slots import DIFFERENTIABLE_OUTPUTS


def prepare(module: fx.GraphModule, program: Program, recorded: Program | None = None) -> Around:
    """Change the graph, within its fake mode, and mark which results the caller sees.

    `recorded` is what Inductor's passes were run on, if they changed it.
    """
    thread_token(module)
    give_sizes_to_loops(module)
    take_rows_unchecked(module)
    draw_without_state(module)
    negated = spell_out_negation(module)
    lazy = take_lazy_from_results(module)
    crossed = take_out_crossed_writes(module)
    output = module.graph.output_node()
    results: Any = output.args[0]
    visible = [
        at
        for at, out in enumerate(program.outputs)
        if isinstance(out.slot, DIFFERENTIABLE_OUTPUTS) and isinstance(results[at], fx.Node)
    ]
    output.meta["user_visible_output_idxs"] = visible
    doubtful, views = doubtful_results(module, visible), views_of_results(module, visible)
    updated = results_of_writes(module)
    copies = copies_of_one(module, visible, memory_of_results(program, recorded))
    return Around(negated, crossed, tuple(doubtful), tuple(views), tuple(updated), tuple(copies), lazy)
