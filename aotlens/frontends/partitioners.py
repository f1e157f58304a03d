"""`default_partition` and `min_cut_rematerialization_partition`, as functions over joint graph modules."""

from typing import Any

from torch import fx

from aotlens.partition.graph_modules import split_graph_module

Modules = tuple[fx.GraphModule, fx.GraphModule]


def default_partition(
    joint_module: fx.GraphModule,
    _joint_inputs: Any,
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: list[int] | None = None,
    static_lifetime_input_nodes: Any = None,
) -> Modules:
    """Forward and backward graph; every forward value that the backward reads is saved."""
    return split_graph_module(joint_module, num_fwd_outputs, "default", static_lifetime_input_indices or ())


def min_cut_rematerialization_partition(
    joint_module: fx.GraphModule,
    _joint_inputs: Any,
    compiler: str = "inductor",
    *,
    num_fwd_outputs: int,
    static_lifetime_input_indices: list[int] | None = None,
) -> Modules:
    """Forward and backward graph; what is saved and what is computed again is chosen by a minimal cut."""
    return split_graph_module(joint_module, num_fwd_outputs, "min-cut", static_lifetime_input_indices or ())
