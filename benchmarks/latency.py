"""Compile latency with compilers that do nothing: from a fresh wrapper to the end of its first
forward and backward, ours beside `functorch.compile.aot_module`.

The model's own first step is part of both sides.  Garbage is collected before each run; collections
during a run are left as Python and the contender have them.
"""

from collections.abc import Callable
from functools import partial

import torch
from functorch.compile import aot_module, default_partition, min_cut_rematerialization_partition, nop
from torch import Tensor, nn

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
from benchmarks.models import gpt, gpt_inputs

LAYERS = (2, 12, 24)
PEER_PARTITIONS = {"default": default_partition, "min-cut": min_cut_rematerialization_partition}


def no_op_backend(graph: torch.fx.GraphModule, _inputs: object) -> Callable[..., object]:
    return graph


def step(compiled: Callable[..., Tensor], inputs: tuple[Tensor, ...]) -> None:
    compiled(*inputs).backward()


def peer_first_step(model: nn.Module, inputs: tuple[Tensor, ...], policy: str) -> None:
    step(aot_module(model, nop, nop, partition_fn=PEER_PARTITIONS[policy]), inputs)


def our_first_step(model: nn.Module, inputs: tuple[Tensor, ...], policy: str) -> Compiled:
    compiled = compile_direct(model, inputs, {}, CompileOptions(backend=no_op_backend, policy=policy))
    step(compiled.call, inputs)
    return compiled


def measure(layers: int, policy: str, rounds: int) -> tuple[dict[str, Samples], list[Compiled]]:
    """Both contenders' samples, and what ours compiled in each round."""
    model, inputs = gpt(layers), gpt_inputs()
    ours: list[Compiled] = []
    contenders = {
        "eager": lambda: time_once(partial(step, model, inputs)),
        "peer": lambda: time_once(partial(peer_first_step, model, inputs, policy)),
        "ours": lambda: time_once(lambda: ours.append(our_first_step(model, inputs, policy))),
    }
    return take_turns(contenders, rounds), ours


def node_count(compiled: Compiled, stage_name: str) -> int:
    stage = compiled.target().stage(stage_name)
    return len(stage.nodes) if stage else 0


def median_stages_ms(runs: list[Compiled]) -> dict[str, float]:
    """Each stage's median over the runs, in the order in which the stages ran."""
    names = runs[-1].timings_ms
    return {name: sorted(run.timings_ms.get(name, 0.0) for run in runs)[len(runs) // 2] for name in names}


def tables_for(policy: str, rounds: int) -> tuple[Table, Table]:
    results = {layers: measure(layers, policy, rounds) for layers in LAYERS}
    nodes = {layers: node_count(runs[-1], "joint") for layers, (_, runs) in results.items()}
    rows: list[tuple[Cell, ...]] = []
    for layers, (samples, _) in results.items():
        eager, peer, ours = (samples[name].median_s * 1e3 for name in ("eager", "peer", "ours"))
        spread = f"±{samples['ours'].spread:.0%}"
        rows.append((f"GPT, {layers} layers", nodes[layers], eager, peer, ours, spread, ours / peer))
    exponents = [
        growth_exponent(list(nodes.values()), [samples[name].median_s for samples, _ in results.values()])
        for name in ("eager", "peer", "ours")
    ]
    rows.append(("growth exponent over nodes", "", *exponents, "", ""))
    columns = ("case", "joint nodes", "eager ms", "peer ms", "ours ms", "spread", "ours / peer")
    note = (
        "No-op compilers; a fresh wrapper, its first forward and backward. "
        f"CPU time, median of {rounds} rounds in turns; garbage collected before each, the collector on."
    )
    latency = Table(f"Compile latency, {policy} partition", columns, tuple(rows), note)

    stages = {layers: median_stages_ms(runs) for layers, (_, runs) in results.items()}
    stage_rows: list[tuple[Cell, ...]] = []
    for name in stages[LAYERS[-1]]:
        times = [stages[layers].get(name, 0.0) for layers in LAYERS]
        growth = growth_exponent(list(nodes.values()), times) if min(times) > 0 else 0.0
        stage_rows.append((name, *times, growth))
    stage_columns = ("stage", *(f"{layers} layers, ms" for layers in LAYERS), "growth exponent")
    stage_note = "Ours, median of the same rounds; 1 is linear in the number of joint nodes."
    return latency, Table(f"Time by stage, {policy} partition", stage_columns, tuple(stage_rows), stage_note)


def main() -> None:
    options = arguments("compile latency beside functorch.compile", rounds=5)
    torch.set_num_threads(1)  # other programs on the machine then disturb less
    for policy in PEER_PARTITIONS:  # both sides import and build what they need once
        measure(1, policy, rounds=1)
    publish("latency", [table for policy in PEER_PARTITIONS for table in tables_for(policy, options.rounds)])


if __name__ == "__main__":
    main()
