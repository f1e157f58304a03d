"""Growth of our stages up to 50,000 joint nodes: the GPT at depths that nobody trains."""

import gc

import torch

import aotlens
from benchmarks.harness import Cell, Table, arguments, growth_exponent, publish
from benchmarks.latency import first_step, joint_nodes, stages_of
from benchmarks.models import gpt, gpt_inputs

LAYERS = (24, 96, 384)
"""About three, thirteen and fifty thousand joint nodes."""
POLICY = "min-cut"


def measure(layers: int, rounds: int) -> tuple[int, dict[str, float]]:
    """Return the joint nodes, and each stage's lowest CPU milliseconds over the rounds."""
    model, inputs = gpt(layers), gpt_inputs()
    rounds_ms: list[dict[str, float]] = []
    for _ in range(rounds):
        gc.collect()
        _, stages_ms = stages_of(first_step(aotlens, model, inputs, POLICY))
        rounds_ms.append(stages_ms)
    nodes = joint_nodes(model, inputs, POLICY)
    return nodes, {name: min(times[name] for times in rounds_ms) for name in rounds_ms[-1]}


def main() -> None:
    options = arguments("growth of our stages", rounds=2)
    torch.set_num_threads(1)
    measure(1, rounds=1)  # imports and one-time tables
    results = [measure(layers, options.rounds) for layers in LAYERS]
    sizes = [nodes for nodes, _ in results]
    rows: list[tuple[Cell, ...]] = []
    for name in results[-1][1]:
        times = [stages[name] for _, stages in results]
        rows.append((name, *times, growth_exponent(sizes, times)))
    totals = [sum(stages.values()) for _, stages in results]
    rows.append(("all of it", *totals, growth_exponent(sizes, totals)))
    columns = ("stage", *(f"{nodes:,} nodes, ms" for nodes in sizes), "growth exponent")
    note = (
        f"Ours, `aotlens.aot_module` with `nop`, policy {POLICY}; CPU time, lowest of {options.rounds} "
        "rounds. "
        "An exponent of 1 is linear in the joint nodes."
    )
    publish("growth", [Table("Growth", columns, tuple(rows), note)])


if __name__ == "__main__":
    main()
