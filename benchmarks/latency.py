"""Compile latency with compilers that do nothing, through public entry points: `aotlens.aot_module` beside
`functorch.compile.aot_module`, from a fresh wrapper to the end of its first call, and of the backward
after it.

The model's own first step is part of both sides.  Garbage is collected before each run; collections
during a run are left as Python and the contender have them.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from itertools import pairwise
from statistics import median

import functorch.compile
import torch
from torch import Tensor, nn

import aotlens
from aotlens.observe import observing
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from benchmarks.harness import Cell, Samples, Table, arguments, growth_exponent, publish, take_turns
from benchmarks.models import CONV_NET, RESNET_50, Model, gpt_model

LAYERS = (2, 12, 24)
CONTENDERS = ("eager", "peer", "ours")
POLICIES = ("default", "min-cut")
PARTITIONS = {"default": "default_partition", "min-cut": "min_cut_rematerialization_partition"}
"""The partition functions by the names that both sides use."""

Inputs = tuple[Tensor, ...]


def wrapped(api: object, model: nn.Module, policy: str) -> nn.Module:
    """Return the model as `aotlens` or `functorch.compile` wraps it; nothing is compiled yet."""
    make, nop, partition = (getattr(api, name) for name in ("aot_module", "nop", PARTITIONS[policy]))
    compiled: nn.Module = make(model, nop, nop, partition_fn=partition)
    return compiled


@dataclass(slots=True)
class FirstStep:
    """A contender that times itself: the first call, and the backward after it."""

    make: Callable[[], Callable[..., Tensor]]
    inputs: Inputs
    steps_s: list[float]
    """CPU seconds to the end of the backward, by round."""

    def __call__(self) -> float:
        start = time.process_time()
        loss = self.make()(*self.inputs)
        called = time.process_time() - start
        loss.backward()
        self.steps_s.append(time.process_time() - start)
        return called


def first_step(api: object, model: nn.Module, inputs: Inputs, policy: str) -> FirstStep:
    return FirstStep(partial(wrapped, api, model, policy), inputs, [])


def stages_of(step: FirstStep) -> tuple[float, dict[str, float]]:
    """Return the seconds of our first step, and CPU milliseconds from the start of each stage to the next."""
    starts: list[tuple[str, float]] = []

    def start(name: str) -> None:
        starts.append((name, time.process_time() * 1e3))

    with observing(on_stage=start):
        called = step()
    start("end")
    return called, {name: after - before for (name, before), (_, after) in pairwise(starts)}


def joint_nodes(model: nn.Module, inputs: Inputs, policy: str) -> int:
    compiled = compile_direct(model, inputs, {}, CompileOptions(backend="eager", policy=policy))
    return len(compiled.joint.program.nodes)


@dataclass(frozen=True, slots=True)
class Measured:
    """One model under one policy."""

    joint_nodes: int
    """Of our joint program."""
    calls: dict[str, Samples]
    """The first calls, by contender."""
    steps_s: dict[str, float]
    """Median CPU seconds of the first calls with their backward, by contender."""
    stages_ms: dict[str, float]
    """Ours: each stage's lowest CPU time over the rounds, in the order of the stages."""


def measure(case: Model, policy: str, rounds: int) -> Measured:
    model, inputs = case.make(), case.inputs()
    stages: list[dict[str, float]] = []

    def ours() -> float:
        called, stages_ms = stages_of(contenders["ours"])
        stages.append(stages_ms)
        return called

    contenders = {
        "eager": FirstStep(lambda: model, inputs, []),
        "peer": first_step(functorch.compile, model, inputs, policy),
        "ours": first_step(aotlens, model, inputs, policy),
    }
    calls = take_turns({**contenders, "ours": ours}, rounds)
    steps_s = {name: median(contender.steps_s) for name, contender in contenders.items()}
    lowest = {name: min(times[name] for times in stages) for name in stages[-1]}
    return Measured(joint_nodes(model, inputs, policy), calls, steps_s, lowest)


def latency_table(
    policy: str, results: dict[int, Measured], others: dict[str, Measured], rounds: int
) -> Table:
    rows: list[tuple[Cell, ...]] = []
    for name, measured in {
        **{gpt_model(layers).name: measured for layers, measured in results.items()},
        **others,
    }.items():
        eager, peer, ours = (measured.calls[contender].median_s * 1e3 for contender in CONTENDERS)
        spread = f"±{measured.calls['ours'].spread:.0%}"
        steps = measured.steps_s["ours"] / measured.steps_s["peer"]
        rows.append((name, measured.joint_nodes, eager, peer, ours, spread, ours / peer, steps))
    sizes = [measured.joint_nodes for measured in results.values()]
    exponents = [
        growth_exponent(sizes, [measured.calls[name].median_s for measured in results.values()])
        for name in CONTENDERS
    ]
    rows.append(("GPT: growth exponent over nodes", "", *exponents, "", "", ""))
    columns = (
        "case",
        "joint nodes",
        "eager ms",
        "peer ms",
        "ours ms",
        "spread",
        "ours / peer",
        "with backward",
    )
    note = (
        "Ours is `aotlens.aot_module`, the peer `functorch.compile.aot_module`, each with its own `nop` and "
        "partition function; the first call of a fresh wrapper, and in the last column its backward too. "
        f"CPU time, median of {rounds} rounds in turns; garbage collected before each, the collector on."
    )
    return Table(f"First call, {policy} partition", columns, tuple(rows), note)


def stage_table(policy: str, results: dict[int, Measured]) -> Table:
    sizes = [measured.joint_nodes for measured in results.values()]
    rows: list[tuple[Cell, ...]] = []
    for name in results[LAYERS[-1]].stages_ms:
        times = [measured.stages_ms[name] for measured in results.values()]
        rows.append((name, *times, growth_exponent(sizes, times)))
    columns = ("stage", *(f"{layers} layers, ms" for layers in LAYERS), "growth exponent")
    note = (
        "Ours; CPU time, the lowest of the same rounds; runtime includes the first forward, codegen of the "
        "backward its first run. "
        "An exponent of 1 is linear in the joint nodes."
    )
    return Table(f"Time by stage, {policy} partition", columns, tuple(rows), note)


def main() -> None:
    options = arguments("compile latency beside functorch.compile", rounds=5)
    torch.set_num_threads(1)  # other programs on the machine then disturb less
    for policy in POLICIES:  # one-time imports of both sides
        measure(gpt_model(1), policy, rounds=1)
    tables: list[Table] = []
    for policy in POLICIES:
        results = {layers: measure(gpt_model(layers), policy, options.rounds) for layers in LAYERS}
        others = {model.name: measure(model, policy, options.rounds) for model in (CONV_NET, RESNET_50)}
        tables += [latency_table(policy, results, others, options.rounds), stage_table(policy, results)]
    publish("latency", tables)


if __name__ == "__main__":
    main()
