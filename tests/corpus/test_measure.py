"""The observer sees a program's tensors, its clocks and its peak of memory, and changes nothing of it."""

import json
import sys
from dataclasses import replace
from pathlib import Path

import pytest
import torch

import corpus.measure
from corpus.measure import Limits, environment, measure, read_graphs
from corpus.process import run_process
from corpus.program import Program, find_programs, read_program
from corpus.records import Graphs, NotCompiled, Run
from corpus.values import compare_dumps
from corpus.verdicts import Ratio, judge
from tests.corpus.made import TEXTS, ran

FULL_PROGRAM = find_programs(("recipes/nanogpt",))[0]
PROGRAM = '''"""Train two layers."""
# corpus: mode=training
import sys
import torch
from torch import nn

def main():
    torch.manual_seed(0)
    block = nn.Linear(4, 4)
    model = nn.Sequential(block, nn.Tanh())
    block.compile(backend="eager")
    print("ready")
    for step in range(5):
        torch.empty(1000 * 1000)
        model(torch.ones(2, 4)).sum().backward()
        print(f"step {step}")
    sys.exit(3)

names = nn.ParameterDict({"scale": torch.ones(2)})
main()
'''


@pytest.mark.parametrize(("step_s", "rounds"), [(0.01, 2), (0.02, 6)])
def test_runs_that_look_slower_are_repeated_with_inductors(
    step_s: float, rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[str] = []

    def run(bench: object, way: str, memory_lines: str = "") -> Run:
        ways.append(way)
        return Run(way, ran(TEXTS, step_s=step_s if way.startswith("aotlens") else 0.01))

    monkeypatch.setattr(corpus.measure.Bench, "run", run)
    measure(FULL_PROGRAM, Limits(verify=False))
    assert [ways.count(f"{side}-warm") for side in ("inductor", "aotlens")] == [rounds, rounds]


@pytest.mark.parametrize(("first_s", "rounds"), [([2.2], 0), ([3.0, 2.1], 1), ([3.0, 3.0, 3.0], 2)])
def test_first_steps_that_look_slower_are_repeated_with_empty_caches(
    first_s: list[float], rounds: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    ways: list[str] = []
    ours = iter(first_s)

    def run(bench: object, way: str, memory_lines: str = "") -> Run:
        ways.append(way)
        return Run(way, ran(TEXTS, first_s=next(ours) if way in ("aotlens", "aotlens-cold") else 2.0))

    monkeypatch.setattr(corpus.measure.Bench, "run", run)
    ratio = judge(FULL_PROGRAM, measure(FULL_PROGRAM, Limits(verify=False))).first_step
    assert [ways.count(f"{side}-cold") for side in ("inductor", "aotlens")] == [rounds, rounds]
    assert ratio == Ratio(min(first_s), 2.0)


@pytest.mark.parametrize(("timed_out", "way"), [(False, "verify"), (True, "quick")])
def test_where_inductor_exceeds_the_limit_eagers_kernels_are_verified(
    timed_out: bool, way: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(bench: object, way: str, memory_lines: str = "") -> Run:
        return Run(way, replace(ran(TEXTS), timed_out=timed_out and way in ("inductor", "aotlens")))

    monkeypatch.setattr(corpus.measure.Bench, "run", run)
    assert measure(FULL_PROGRAM, Limits(warm_rounds=0)).runs[-1].way == way


@pytest.mark.rotates
def test_each_cold_run_starts_with_empty_caches(tmp_path: Path) -> None:
    """A process that finds what an earlier one left says so."""
    program = Program(tmp_path / "net.py", "Print.", "inference")
    program.path.write_text(
        "import os, pathlib\n"
        "left = pathlib.Path(os.environ['TORCHINDUCTOR_CACHE_DIR'], 'left')\n"
        "print(left.exists())\n"
        "left.parent.mkdir(parents=True, exist_ok=True)\n"
        "left.touch()\n"
    )
    bench = corpus.measure.Bench(program, tmp_path, Limits())
    ways = ("inductor", "inductor-warm", "inductor-cold", "inductor-cold", "inductor-warm")
    found_something = [bench.run(way).ran.stdout == ("True",) for way in ways]
    assert found_something == [False, True, False, False, True]


@pytest.mark.rotates
def test_what_the_observer_notes(tmp_path: Path) -> None:
    path = tmp_path / "recipes" / "net.py"
    path.parent.mkdir()
    path.write_text(PROGRAM)
    dump = tmp_path / "dump"
    dump.mkdir()
    program = read_program(path)
    env = environment(program, "inductor", dump, tmp_path) | {"CORPUS_MEMORY_LINES": "4-6"}
    ran = run_process([sys.executable, str(path)], env, tmp_path, 120)
    assert (ran.exit_code, ran.stdout) == (3, ("ready", *(f"step {step}" for step in range(5))))
    times = [line.thread_cpu_s for line in ran.lines]
    assert times == sorted(times)
    assert times[0] > 0
    tensors = torch.load(dump / "rank0.pt")
    assert sorted(tensors) == [
        "model.0.bias",
        "model.0.bias.grad",
        "model.0.weight",
        "model.0.weight.grad",
        "names.scale",
    ]
    assert 4_000_000 <= json.loads((dump / "memory.json").read_text())["peak_bytes"] < 5_000_000
    assert len(compare_dumps(dump, dump).tensors) == 5
    assert not (dump / "observer_error.txt").exists()


def test_the_report_of_a_run(tmp_path: Path) -> None:
    entry = {
        "name": "Net",
        "qualname": "Net.forward",
        "cause": "unsupported",
        "reason": "`as_strided` beyond the storage",
        "code": "AL402",
        "span": {"file": "/home/me/net.py", "line": 7, "col": 0, "end_line": 7, "end_col": 9},
        "calls": 3,
    }
    report = tmp_path / "report.json"
    report.write_text(json.dumps({"targets": [{}, {}], "not_compiled": [entry, entry | {"span": None}]}))
    reason = "`as_strided` beyond the storage"
    assert read_graphs(report) == Graphs(
        2,
        (
            NotCompiled("Net", "AL402", "unsupported", reason, "net.py:7"),
            NotCompiled("Net", "AL402", "unsupported", reason, ""),
        ),
    )


@pytest.mark.parametrize("text", [None, "", "{"])
def test_a_run_without_a_report(tmp_path: Path, text: str | None) -> None:
    report = tmp_path / "report.json"
    if text is not None:
        report.write_text(text)
    assert read_graphs(report) is None
