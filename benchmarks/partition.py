"""Time the division of a joint graph into forward and backward: our partition functions and torch's.

Both get copies of one joint graph module, which torch recorded, and return two graph modules.  The cut is
also timed separately: networkx on torch's network, OR-tools on ours.  One function counts what either saves:
bytes of storage in addition to inputs and results.
"""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from typing import Any

import torch
from functorch import compile as functorch_compile
from functorch.compile import aot_module, nop
from torch import fx, nn

from aotlens import default_partition, min_cut_rematerialization_partition
from aotlens.ir.graph_module import flat_outputs
from aotlens.partition import policies as choices
from aotlens.partition.min_cut import Network
from benchmarks.harness import Cell, Table, arguments, growth_exponent, publish, take_turns, time_once
from benchmarks.models import CONV_NET, Model, gpt_model

LAYERS = (8, 38, 150, 380)
"""About one, five, twenty and fifty thousand joint nodes."""

NETWORK = "Network"
"""The policy's name for the class that is timed."""

ONCE_FROM = 20_000
"""Larger graphs are divided in one round only: the peer takes most of a minute for each."""

PEER_PARTITIONS: dict[str, Callable[..., Any]] = {
    "default": functorch_compile.default_partition,
    "min-cut": functorch_compile.min_cut_rematerialization_partition,
}
OUR_PARTITIONS: dict[str, Callable[..., Any]] = {
    "default": default_partition,
    "min-cut": min_cut_rematerialization_partition,
}


@dataclass(frozen=True, slots=True)
class PeerCall:
    """The arguments that the peer passed to its partition function."""

    joint: fx.GraphModule
    joint_inputs: object
    keywords: dict[str, Any]

    def divide(self, function: Callable[..., Any]) -> tuple[float, tuple[fx.GraphModule, fx.GraphModule]]:
        """Return CPU seconds, and the two graphs."""
        fresh = copied(self.joint)
        graphs: list[Any] = []
        seconds = time_once(lambda: graphs.append(function(fresh, self.joint_inputs, **self.keywords)))
        return seconds, graphs[0]

    def saved_bytes(self, forward: fx.GraphModule) -> int:
        """Return the bytes of storages that a forward graph returns in addition to inputs and results."""
        results = flat_outputs(forward)
        count = self.keywords["num_fwd_outputs"]
        inputs_and_results = [*forward.graph.find_nodes(op="placeholder"), *results[:count]]
        known = {storage for node in inputs_and_results if (storage := storage_of(node))}
        new = {storage for node in results[count:] if (storage := storage_of(node))} - known
        return sum(size for _, size in new)


def storage_of(node: Any) -> tuple[int, int] | None:
    """Return a fake tensor's storage and its bytes; None for other values."""
    val = node.meta.get("val") if isinstance(node, fx.Node) else None
    if not isinstance(val, torch.Tensor):
        return None
    return val.untyped_storage()._cdata, val.untyped_storage().nbytes()


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """Return the same nodes and metadata in a new graph."""
    graph = fx.Graph()
    result = graph.graph_copy(module.graph, {})
    graph.output(result).meta = dict(module.graph.output_node().meta)
    return fx.GraphModule(module, graph)


def record_peer(model: nn.Module, inputs: tuple[torch.Tensor, ...]) -> PeerCall:
    calls: list[PeerCall] = []

    def recording(joint: fx.GraphModule, joint_inputs: object, **keywords: Any) -> object:
        calls.append(PeerCall(copied(joint), joint_inputs, keywords))
        return PEER_PARTITIONS["default"](joint, joint_inputs, **keywords)

    aot_module(model, nop, nop, partition_fn=recording)(*inputs)
    return calls[0]


@contextmanager
def timing(owner: Any, name: str) -> Iterator[list[float]]:
    """Record the CPU seconds of each call of `owner.name` within the block."""
    function, seconds = getattr(owner, name), list[float]()

    def timed(*args: Any, **kwargs: Any) -> Any:
        results: list[Any] = []
        seconds.append(time_once(lambda: results.append(function(*args, **kwargs))))
        return results[0]

    setattr(owner, name, timed)
    try:
        yield seconds
    finally:
        setattr(owner, name, function)


@dataclass(frozen=True, slots=True)
class Found:
    """Medians of one case: seconds and bytes, the peer's and ours."""

    nodes: int
    whole: tuple[float, float]
    cut: tuple[float, float]
    saved: tuple[int, int]


def measure(model: Model, policy: str, rounds: int) -> Found:
    networkx = import_module("networkx")  # the peer's dependency, which has no types

    call = record_peer(model.make(), model.inputs())
    nodes = sum(node.op == "call_function" for node in call.joint.graph.nodes)
    with timing(networkx, "minimum_cut") as peer_cuts, timing_ours() as our_cuts:
        contenders = {
            "peer": partial(_seconds, call, PEER_PARTITIONS[policy]),
            "ours": partial(_seconds, call, OUR_PARTITIONS[policy]),
        }
        samples = take_turns(contenders, 1 if nodes > ONCE_FROM else rounds)
        saved = tuple(
            call.saved_bytes(call.divide(function)[1][0])
            for function in (PEER_PARTITIONS[policy], OUR_PARTITIONS[policy])
        )
    cuts = (min(peer_cuts, default=0.0), min(our_cuts, default=0.0))
    return Found(nodes, (samples["peer"].median_s, samples["ours"].median_s), cuts, (saved[0], saved[1]))


@contextmanager
def timing_ours() -> Iterator[list[float]]:
    """Record the CPU seconds of each cut: building the network and solving it."""
    seconds: list[float] = []

    class Timed(Network):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            self._built = time_once(lambda: super(Timed, self).__init__(*args, **kwargs))

        def solve(self, without: int | None = None) -> frozenset[int]:
            results: list[frozenset[int]] = []
            took = time_once(lambda: results.append(super(Timed, self).solve(without)))
            seconds.append(self._built + took)
            return results[0]

    original = getattr(choices, NETWORK)
    setattr(choices, NETWORK, Timed)
    try:
        yield seconds
    finally:
        setattr(choices, NETWORK, original)


def _seconds(call: PeerCall, function: Callable[..., Any]) -> float:
    return call.divide(function)[0]


def row(model: Model, timing: Found) -> tuple[Cell, ...]:
    peer, ours = timing.whole
    cells: tuple[Cell, ...] = (model.name, timing.nodes, peer * 1e3, ours * 1e3, peer / ours)
    if any(timing.cut):
        cells = (*cells, timing.cut[0] * 1e3, timing.cut[1] * 1e3, timing.cut[0] / timing.cut[1])
    return (*cells, timing.saved[0], timing.saved[1])


def main() -> None:
    options = arguments("partition time beside torch's partitioners", rounds=3)
    torch.set_num_threads(1)  # other programs on the machine then disturb less
    models = [*map(gpt_model, LAYERS), CONV_NET]
    tables = []
    whole = ("case", "joint nodes", "peer ms", "ours ms", "peer / ours")
    saved = ("peer saves, bytes", "ours saves, bytes")
    for policy in PEER_PARTITIONS:
        measure(gpt_model(1), policy, rounds=1)  # one-time imports of both sides
        results = [(model, measure(model, policy, options.rounds)) for model in models]
        rows = [row(model, timing) for model, timing in results]
        cut = ("peer cut ms", "our cut ms", "cut: peer / ours") if any(results[0][1].cut) else ()
        grown = [timing for model, timing in results if model is not CONV_NET]
        sizes = [timing.nodes for timing in grown]
        growth = [growth_exponent(sizes, [timing.whole[side] for timing in grown]) for side in (0, 1)]
        cuts: tuple[Cell, ...] = ()
        if cut:
            cuts = (*(growth_exponent(sizes, [timing.cut[side] for timing in grown]) for side in (0, 1)), "")
        rows.append(("GPT: growth exponent", "", *growth, "", *cuts, "", ""))
        note = (
            "Both divide copies of the joint graph that torch recorded, and give two graph modules. CPU time,"
            f" median of {options.rounds} rounds in turns (one round above {ONCE_FROM:,} nodes); the cut"
            " alone, building our network included: the fastest. Bytes: storage beyond inputs and results."
        )
        tables.append(Table(f"Partition, {policy}", (*whole, *cut, *saved), tuple(rows), note))
    publish("partition", tables)


if __name__ == "__main__":
    main()
