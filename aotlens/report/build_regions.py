"""The report's rows of marked regions.

Invariant: a region is one row however often it is called; its calls are the row's sites.
"""

import torch

from aotlens.ir.origin import Origin
from aotlens.ir.program import Program
from aotlens.ir.regions import Kept, Region, Result
from aotlens.partition.records import Partitioned
from aotlens.partition.storages import node_bytes
from aotlens.report import records as rows
from aotlens.report.describe import describe_tensor
from aotlens.report.sites import site_of


def build_region(region: Region, parts: Partitioned) -> rows.Region:
    calls = _calls(region.forward, parts.forward)
    count = len(calls)
    return rows.Region(
        name=region.name,
        reason=f"traced and divided once, for {count} call{'s' if count != 1 else ''} alike",
        sites=tuple(site for origin in calls if (site := site_of(origin)) is not None),
        saved=tuple(_saved(kept, region) for kept in region.kept if isinstance(kept.node.val, torch.Tensor)),
        recomputed=tuple(
            rows.RecomputedValue(
                item.node.name, item.size_bytes, item.flops, item.reason, item.node.origin.place.innermost
            )
            for item in region.recomputed
        ),
    )


def _calls(body: Program, program: Program) -> list[Origin]:
    """Where a program, or a body of it, calls this body."""
    found = [node.origin for node in program.nodes if any(own is body for own in node.bodies())]
    for inner in program.bodies():
        found += _calls(body, inner)
    return found


def _saved(kept: Kept, region: Region) -> rows.SavedValue:
    new = isinstance(kept.source, Result) and kept.source.index >= region.result_count
    owner: rows.Owner = "new" if new else "output" if isinstance(kept.source, Result) else "input"
    return rows.SavedValue(
        node=kept.node.name,
        tensor=describe_tensor(kept.node.val),
        bytes=node_bytes(kept.node) if new else 0,
        owner=owner,
        reason=kept.reason,
        span=kept.node.origin.place.innermost,
    )
