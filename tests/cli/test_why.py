"""`aotlens why`: the script runs unchanged, and Dynamo's facts stand on one screen."""

from pathlib import Path

from aotlens.report.codec import loads
from tests.command import aotlens

SCRIPT = """\
import sys
import torch

@torch.compile(backend="eager")
def f(x, k):
    y = x.sin()
    torch._dynamo.graph_break()
    return y * k

for k in (2, 3):
    f(torch.ones(4), k)
print("value:", sys.argv[1])
sys.exit(3)
"""
FAILING = """\
import torch
f = torch.compile(lambda x: x + 1, backend="eager")
f(torch.ones(2))
raise KeyError("lost")
"""
QUITTING = "import os\nos._exit(7)\n"
BUDGET = "[tool.aotlens]\nmax-graph-breaks = 0\n"


def test_the_scripts_output_and_exit_code_are_its_own(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    ended = aotlens("why", "--format", "json", "script.py", "--k", cwd=tmp_path)
    assert (ended.code, ended.err) == (3, "value: --k\n")
    report = loads(ended.out)
    assert report.dynamo is not None
    (function,) = report.dynamo.functions
    assert [(entry.text, entry.code, entry.span.line, entry.span.col) for entry in function.breaks] == [
        ("torch._dynamo.graph_break()", "GB0025", 7, 4)
    ]
    causes = [entry.cause for entry in function.recompilations]
    assert [(one.kind, one.name, one.old, one.new) for one in causes if one is not None] == [
        ("number", "k", "2", "3")
    ]
    assert [(one.code, one.severity) for one in report.diagnostics] == [("AL406", "information")]


def test_a_budget_makes_it_fail(tmp_path: Path) -> None:
    (tmp_path / "pyproject.toml").write_text(BUDGET)
    (tmp_path / "script.py").write_text(SCRIPT.replace("sys.exit(3)", ""))
    ended = aotlens("why", "script.py", "1", cwd=tmp_path)
    assert ended.code == 1
    assert ended.err == (
        "value: 1\naotlens: AL805: `f` has 1 graph break, over its budget of 0 (max-graph-breaks)\n"
    )
    first, second, third, *_ = ended.out.splitlines()
    assert first.startswith("aotlens: 1 graph break, 1 recompilation; compiling took ")
    assert second == "What to fix first"
    assert third.startswith("  1. graph break in f  script.py:7:5")


def test_a_script_that_fails_is_reported_up_to_there(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FAILING)
    ended = aotlens("why", "script.py", cwd=tmp_path)
    assert ended.code == 2
    assert ended.out.startswith("Incomplete: the script failed: ")
    assert "nothing to fix" in ended.out
    assert 'raise KeyError("lost")' in ended.err


def test_a_process_that_ends_itself_leaves_no_report(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(QUITTING)
    ended = aotlens("why", "script.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == (
        "aotlens: error: script.py ended itself with exit code 7 before a report could be made\n"
    )
