"""What a script compiles in processes that it spawns is compiled by the engine, and stands in the report."""

from pathlib import Path

import pytest

from aotlens.model.codec import loads
from tests.command import ROOT, aotlens

SCRIPT = """
import multiprocessing
import sys

import torch


@torch.compile
def in_child(x):
    return x.sin() + 1


@torch.compile
def in_parent(x):
    return x.cos() + 1


def work(code):
    print(f"child {in_child(torch.zeros(3)).tolist()}", flush=True)
    sys.exit(code)


if __name__ == "__main__":
    print(f"parent {in_parent(torch.zeros(2)).tolist()}", flush=True)
    context = multiprocessing.get_context("spawn")
    process = context.Process(target=work, args=(5,))
    process.start()
    process.join()
    sys.exit(process.exitcode)
"""


@pytest.mark.rotates
def test_processes_that_a_script_spawns(tmp_path: Path) -> None:
    script, report = tmp_path / "spawning.py", tmp_path / "report.json"
    script.write_text(SCRIPT)
    options = ["--backend", "eager", "--no-cache", "--report", str(report)]
    ended = aotlens("run", *options, script, cwd=ROOT)
    assert ended.out.splitlines() == ["parent [2.0, 2.0]", "child [1.0, 1.0, 1.0]"], ended.err
    assert ended.code == 5
    written = loads(report.read_text())
    assert [target.name for target in written.targets] == ["in_parent", "in_child"]
    assert written.not_compiled == ()
