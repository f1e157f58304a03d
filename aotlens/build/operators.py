"""The rows of operators with more than a result: effects, higher-order operators, marked regions."""

from collections.abc import Iterator

import torch

from aotlens.ir.origin import Origin, site_of
from aotlens.ir.program import Node, Program, getitem, is_higher_order, is_random_node, op_name
from aotlens.ir.regions import Region, RegionOutput, SavedValue
from aotlens.ir.tensor_text import describe_tensor
from aotlens.model import report as rows
from aotlens.partition.records import Partitioned
from aotlens.partition.storages import node_bytes

IN_ORDER = "an effect: it runs once per call, in the order of your code, even if nobody reads its output"
RANDOM_IN_ORDER = "its subgraphs use random numbers: it runs once per call, in the order of your code"
NESTED = "a higher-order operator: its subgraphs are programs inside the graph"


def build_operators(parts: Partitioned) -> tuple[rows.SpecialOperator, ...]:
    """In the order in which they run."""
    forward: rows.Phase = "inference" if parts.backward is None else "forward"
    operators = list(_of_program(parts.forward, forward))
    if parts.backward is not None:
        operators += _of_program(parts.backward, "backward")
    return tuple(operators)


def _of_program(program: Program, phase: rows.Phase) -> Iterator[rows.SpecialOperator]:
    for node in program.nodes:
        effect = node.origin.effect and node.origin.stage == "captured"
        if node.op in (None, getitem) or not (effect or is_higher_order(node.op)):
            continue
        site = site_of(node.origin)
        kind: rows.SpecialKind = "effect" if effect else "higher_order"
        reason = _in_order(node) if effect else NESTED
        yield rows.SpecialOperator(_name(node), kind, phase, reason, () if site is None else (site,))


def _in_order(node: Node) -> str:
    return RANDOM_IN_ORDER if node.subgraphs() and is_random_node(node) else IN_ORDER


def _name(node: Node) -> str:
    return op_name(node.op)


def build_region(region: Region, parts: Partitioned) -> rows.Region:
    """Return a `nested_compile_region` with its calls, its saved tensors and its recomputed values.

    Saved sizes are numbers and hold no memory, so they are left out.
    """
    calls = _calls(region.forward, parts.forward)
    count = len(calls)
    return rows.Region(
        name=region.name,
        reason=f"traced and partitioned once, for {count} call{'s' if count != 1 else ''}",
        sites=tuple(site for origin in calls if (site := site_of(origin)) is not None),
        saved=tuple(
            _saved(saved_value, region)
            for saved_value in region.saved
            if isinstance(saved_value.node.val, torch.Tensor)
        ),
        recomputed=tuple(
            rows.RecomputedValue(
                item.node.name, item.size_bytes, item.flops, item.reason, item.node.origin.location.innermost
            )
            for item in region.recomputed
        ),
    )


def _calls(subgraph: Program, program: Program) -> list[Origin]:
    """Return where a program, or a subgraph of it, calls this subgraph."""
    origins = [node.origin for node in program.nodes if any(own is subgraph for own in node.subgraphs())]
    for inner in program.subgraphs():
        origins += _calls(subgraph, inner)
    return origins


def _saved(saved_value: SavedValue, region: Region) -> rows.SavedValue:
    new = isinstance(saved_value.source, RegionOutput) and saved_value.source.index >= region.result_count
    owner: rows.Owner = (
        "new" if new else "output" if isinstance(saved_value.source, RegionOutput) else "input"
    )
    return rows.SavedValue(
        node=saved_value.node.name,
        tensor=describe_tensor(saved_value.node.val),
        bytes=node_bytes(saved_value.node) if new else 0,
        owner=owner,
        reason=saved_value.reason,
        span=saved_value.node.origin.location.innermost,
    )
