"""Which graph node brings each number that only the data tells, as Inductor and torch's own tracing have it.

Invariant: after `mark_data_symbols` every unbacked symbol that no input carries stands in the
`meta["unbacked_bindings"]` of exactly one node, the first whose value shows it, with the way to it.
"""

from typing import Any

import torch
from torch import fx

from aotlens.torch_api.fake import FakeTensor
from aotlens.torch_api.symbolic import paths_to_symbols, unbacked_symbols


def mark_data_symbols(graph: fx.Graph) -> None:
    """Add the bindings; a graph over known sizes costs one look at its first tensor."""
    environment = _environment(graph)
    pending = unbacked_symbols(environment) if environment is not None else set()
    for node in graph.nodes:
        if not pending:
            return
        val = node.meta.get("val")
        if node.op in ("placeholder", "get_attr"):
            pending -= symbols_of(val)
        elif val is not None and (paths := paths_to_symbols(val, environment, pending)):
            node.meta["unbacked_bindings"] = paths


def _environment(graph: fx.Graph) -> Any:
    """The environment of symbols that the graph's values live in; None when all sizes are known."""
    for node in graph.nodes:
        val = node.meta.get("val")
        if isinstance(val, FakeTensor):
            return val.fake_mode.shape_env
        if isinstance(val, (torch.SymInt, torch.SymFloat, torch.SymBool)):
            return val.node.shape_env
    return None


def numbers_of(val: Any) -> list[Any]:
    """The symbolic numbers in a value: itself, or a tensor's sizes, strides and offset, of each in a list."""
    if isinstance(val, (list, tuple)):
        return [number for item in val for number in numbers_of(item)]
    numbers: tuple[Any, ...] = (val,)
    if isinstance(val, FakeTensor):
        has_strides = val.layout is torch.strided
        numbers = (*val.shape, *val.stride(), val.storage_offset()) if has_strides else tuple(val.shape)
    kinds = (torch.SymInt, torch.SymFloat, torch.SymBool)
    return [each for each in numbers if isinstance(each, kinds) and each.node.is_symbolic()]


def symbols_of(val: Any) -> set[Any]:
    """The symbols in a value's numbers."""
    return {symbol for number in numbers_of(val) for symbol in number.node.expr.free_symbols}
