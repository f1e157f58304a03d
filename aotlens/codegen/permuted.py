"""Rows taken in a random order (`x[torch.randperm(n)]`), for Inductor, of which one pattern fails on them.

Invariant: such an index is in bounds, so the graph says that nobody need check it, which is what the pattern
would make of it.
"""

from torch import fx

from aotlens.capture.operators import aten

PERMUTATIONS = (aten.randperm.default, aten.randperm.generator)


def take_rows_unchecked(module: fx.GraphModule) -> None:
    changed = False
    for node in module.graph.find_nodes(op="call_function", target=aten.index.Tensor):
        if any(_is_permutation(index) for index in node.args[1]):
            node.target = aten._unsafe_index.Tensor
            changed = True
    if changed:
        module.recompile()


def _is_permutation(index: object) -> bool:
    """Whether it is one, or the first of one."""
    if isinstance(index, fx.Node) and index.target is aten.slice.Tensor:
        index = index.args[0]
    return isinstance(index, fx.Node) and index.target in PERMUTATIONS
