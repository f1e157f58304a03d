"""Peak memory that a first step adds, compilation included: ours and `functorch.compile`.

Each contender runs in its own process, which has compiled a small model before, so that one-time imports are
not counted.
"""

import subprocess
import sys
from pathlib import Path

import functorch.compile
import torch

import aotlens
from benchmarks.harness import Cell, Table, publish
from benchmarks.latency import FirstStep, first_step
from benchmarks.models import CONV_NET, Model, gpt_model

MODELS = (gpt_model(12), gpt_model(48), CONV_NET)
CONTENDERS = ("eager", "peer", "ours")
POLICY = "min-cut"
STATUS, CLEAR_PEAK = Path("/proc/self/status"), Path("/proc/self/clear_refs")


def run_first_step(contender: str, case: Model) -> None:
    model, inputs = case.make(), case.inputs()
    if contender == "eager":
        FirstStep(lambda: model, inputs, [])()
    else:
        first_step(functorch.compile if contender == "peer" else aotlens, model, inputs, POLICY)()


def status_mib(field: str) -> float:
    line = next(line for line in STATUS.read_text().splitlines() if line.startswith(field))
    return int(line.split()[1]) / 1024


def measure_here(contender: str, index: int) -> None:
    """Print the MiB between the memory before the step and the peak during it."""
    torch.set_num_threads(1)
    run_first_step(contender, gpt_model(1))
    CLEAR_PEAK.write_text("5")  # the peak restarts from the current memory
    before = status_mib("VmRSS")
    run_first_step(contender, MODELS[index])
    print(status_mib("VmHWM") - before)


def measure(contender: str, index: int) -> float:
    command = [sys.executable, "-m", "benchmarks.memory", contender, str(index)]
    return float(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def main() -> None:
    if len(sys.argv) > 2:
        measure_here(sys.argv[1], int(sys.argv[2]))
        return
    rows: list[tuple[Cell, ...]] = []
    for index, model in enumerate(MODELS):
        eager, peer, ours = (measure(contender, index) for contender in CONTENDERS)
        rows.append((model.name, eager, peer, ours, ours / peer))
    columns = ("case", "eager MiB", "peer MiB", "ours MiB", "ours / peer")
    note = (
        f"Growth of the resident set at its peak from before the model is made to after its first forward "
        f"and backward, policy {POLICY}; `aot_module` with `nop` on both sides; a process each, Linux only."
    )
    publish("memory", [Table("Peak memory of a first step", columns, tuple(rows), note)])


if __name__ == "__main__":
    main()
