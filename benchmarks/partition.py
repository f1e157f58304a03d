"""Dividing a joint graph into forward and backward: our policies beside torch's partitioners.

Both sides divide the joint graph of the same GPT, which each recorded itself.  The peer's function is
timed on copies of one recorded graph, since it changes what it is given; ours also finds the reasons.
"""

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

import torch
from functorch.compile import aot_module, nop
from torch import nn

from aotlens.options import CompileOptions
from aotlens.partition.stage import partition
from aotlens.pipeline import compile_direct
from benchmarks.harness import Cell, Table, arguments, growth_exponent, publish, take_turns, time_once
from benchmarks.latency import PEER_PARTITIONS
from benchmarks.models import gpt, gpt_inputs

LAYERS = (8, 38, 150)
"""About one, five and twenty thousand joint nodes."""


@dataclass(frozen=True, slots=True)
class PeerCall:
    """What the peer gave to its partition function."""

    joint: torch.fx.GraphModule
    joint_inputs: object
    keywords: dict[str, object]

    def time(self, divide: Callable[..., object]) -> float:
        fresh = copied(self.joint)
        return time_once(lambda: divide(fresh, self.joint_inputs, **self.keywords))


def copied(module: torch.fx.GraphModule) -> torch.fx.GraphModule:
    """The same nodes and metadata in a graph of its own."""
    graph = torch.fx.Graph()
    result = graph.graph_copy(module.graph, {})
    graph.output(result).meta = dict(module.graph.output_node().meta)
    return torch.fx.GraphModule(module, graph)


def record_peer(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> PeerCall:
    calls: list[PeerCall] = []

    def recording(joint: torch.fx.GraphModule, joint_inputs: object, **keywords: object) -> object:
        calls.append(PeerCall(copied(joint), joint_inputs, keywords))
        return PEER_PARTITIONS["default"](joint, joint_inputs, **keywords)

    aot_module(model, nop, nop, partition_fn=recording)(*inputs)
    return calls[0]


def measure(layers: int, rounds: int) -> dict[str, tuple[int, float, float]]:
    """By policy: our joint nodes, the peer's median seconds and ours."""
    model, inputs = gpt(layers), gpt_inputs()
    peer = record_peer(model, inputs)
    joint = compile_direct(model, inputs, {}, CompileOptions(backend="eager")).joint
    found = {}
    for policy, peer_partition in PEER_PARTITIONS.items():
        contenders = {
            "peer": partial(peer.time, peer_partition),
            "ours": partial(time_once, partial(partition, joint, policy)),
        }
        samples = take_turns(contenders, rounds)
        found[policy] = len(joint.program.nodes), samples["peer"].median_s, samples["ours"].median_s
    return found


def main() -> None:
    options = arguments("partition time beside torch's partitioners", rounds=3)
    torch.set_num_threads(1)  # other programs on the machine then disturb less
    measure(1, rounds=1)  # both sides import what they need once
    results = {layers: measure(layers, options.rounds) for layers in LAYERS}
    rows: list[tuple[Cell, ...]] = []
    for policy in PEER_PARTITIONS:
        found = [results[layers][policy] for layers in LAYERS]
        for nodes, peer, ours in found:
            rows.append((policy, nodes, peer * 1e3, ours * 1e3, ours / peer))
        sizes = [nodes for nodes, _, _ in found]
        growth = [growth_exponent(sizes, [times[side] for times in found]) for side in (1, 2)]
        rows.append((f"{policy}: growth exponent", "", *growth, ""))
    columns = ("policy", "joint nodes", "peer ms", "ours ms", "ours / peer")
    depths = ", ".join(map(str, LAYERS))
    note = f"The GPT at {depths} layers; CPU time, median of {options.rounds} rounds in turns."
    publish("partition", [Table("Partition", columns, tuple(rows), note)])


if __name__ == "__main__":
    main()
