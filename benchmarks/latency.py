"""Compile latency with compilers that do nothing: from a fresh wrapper to the end of its first
forward and backward, ours beside `functorch.compile.aot_module`.

The model's own first step is part of both sides.  Garbage is collected before each run; collections
during a run are left as Python and the contender have them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise

import torch
from functorch.compile import aot_module, default_partition, min_cut_rematerialization_partition, nop
from torch import Tensor, nn

from aotlens.observe import observing
from aotlens.options import CompileOptions
from aotlens.pipeline import Compiled, compile_direct
from benchmarks.harness import (
    Cell,
    Samples,
    Table,
    arguments,
    growth_exponent,
    publish,
    take_turns,
    time_once,
)
from benchmarks.models import CONV_NET, Model, gpt_model

LAYERS = (2, 12, 24, 48)
CONTENDERS = ("eager", "peer", "ours")
PEER_PARTITIONS = {"default": default_partition, "min-cut": min_cut_rematerialization_partition}


def no_op_backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., object]:
    return graph


def step(compiled: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> None:
    compiled(*inputs).backward()


def peer_first_step(model: nn.Module, inputs: tuple[Tensor, ...], policy: str) -> None:
    step(aot_module(model, nop, nop, partition_fn=PEER_PARTITIONS[policy]), inputs)


def our_first_step(
    model: nn.Module, inputs: tuple[Tensor, ...], policy: str
) -> tuple[Compiled, dict[str, float]]:
    """What was compiled, and CPU milliseconds from the start of each stage to the start of the next."""
    starts: list[tuple[str, float]] = []

    def start(name: str) -> None:
        starts.append((name, time.process_time() * 1e3))

    with observing(on_stage=start):
        compiled = compile_direct(model, inputs, {}, CompileOptions(backend=no_op_backend, policy=policy))
        start("first forward")
        step(compiled.call, inputs)
    start("end")
    return compiled, {name: after - before for (name, before), (_, after) in pairwise(starts)}


@dataclass(frozen=True, slots=True)
class Measured:
    """One model under one policy."""

    joint_nodes: int
    """In our joint program."""
    samples: dict[str, Samples]
    """By contender."""
    stages_ms: dict[str, float]
    """Ours: each stage's lowest CPU time over the rounds, in the order in which the stages run."""


def measure(given: Model, policy: str, rounds: int) -> Measured:
    model, inputs = given.make(), given.inputs()
    sizes: list[int] = []
    stages: list[dict[str, float]] = []

    def ours() -> None:
        compiled, stages_ms = our_first_step(model, inputs, policy)
        sizes.append(len(compiled.joint.program.nodes))
        stages.append(stages_ms)

    contenders = {
        "eager": lambda: time_once(partial(step, model, inputs)),
        "peer": lambda: time_once(partial(peer_first_step, model, inputs, policy)),
        "ours": lambda: time_once(ours),
    }
    samples = take_turns(contenders, rounds)
    lowest = {name: min(times[name] for times in stages) for name in stages[-1]}
    return Measured(sizes[-1], samples, lowest)


def latency_table(policy: str, results: dict[int, Measured], conv_net: Measured, rounds: int) -> Table:
    rows: list[tuple[Cell, ...]] = []
    named = {**{gpt_model(layers).name: found for layers, found in results.items()}, CONV_NET.name: conv_net}
    for name, found in named.items():
        eager, peer, ours = (found.samples[name].median_s * 1e3 for name in CONTENDERS)
        spread = f"±{found.samples['ours'].spread:.0%}"
        rows.append((name, found.joint_nodes, eager, peer, ours, spread, ours / peer))
    sizes = [found.joint_nodes for found in results.values()]
    exponents = [
        growth_exponent(sizes, [found.samples[name].median_s for found in results.values()])
        for name in CONTENDERS
    ]
    rows.append(("GPT: growth exponent over nodes", "", *exponents, "", ""))
    columns = ("case", "joint nodes", "eager ms", "peer ms", "ours ms", "spread", "ours / peer")
    note = (
        "No-op compilers; a fresh wrapper, its first forward and backward. "
        f"CPU time, median of {rounds} rounds in turns; garbage collected before each, the collector on."
    )
    return Table(f"Compile latency, {policy} partition", columns, tuple(rows), note)


def stage_table(policy: str, results: dict[int, Measured]) -> Table:
    sizes = [found.joint_nodes for found in results.values()]
    rows: list[tuple[Cell, ...]] = []
    for name in results[LAYERS[-1]].stages_ms:
        times = [found.stages_ms[name] for found in results.values()]
        rows.append((name, *times, growth_exponent(sizes, times)))
    columns = ("stage", *(f"{layers} layers, ms" for layers in LAYERS), "growth exponent")
    note = (
        "Ours; CPU time, the lowest of the same rounds; codegen of the backward includes its first run. "
        "An exponent of 1 is linear in the joint nodes."
    )
    return Table(f"Time by stage, {policy} partition", columns, tuple(rows), note)


def main() -> None:
    options = arguments("compile latency beside functorch.compile", rounds=5)
    torch.set_num_threads(1)  # other programs on the machine then disturb less
    for policy in PEER_PARTITIONS:  # both sides import and build what they need once
        measure(gpt_model(1), policy, rounds=1)
    tables: list[Table] = []
    for policy in PEER_PARTITIONS:
        results = {layers: measure(gpt_model(layers), policy, options.rounds) for layers in LAYERS}
        conv_net = measure(CONV_NET, policy, options.rounds)
        tables += [latency_table(policy, results, conv_net, options.rounds), stage_table(policy, results)]
    publish("latency", tables)


if __name__ == "__main__":
    main()
