"""`aotlens why`: the script runs unchanged, and Dynamo's facts stand on one screen."""

from pathlib import Path

import pytest

from aotlens.model.codec import loads
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
    assert [(item.kind, item.name, item.old, item.new) for item in causes if item is not None] == [
        ("number", "k", "2", "3")
    ]
    assert [(item.code, item.severity) for item in report.diagnostics] == [("AL406", "information")]


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


def test_a_forecast_of_an_argument_that_nothing_has_is_an_error_alone(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(FAILING.partition("raise")[0])
    ended = aotlens("why", "--vary", "y=3", "script.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    (message,) = ended.err.splitlines()
    assert message.startswith("aotlens: error: nothing that is compiled takes `y`: ")


def test_a_process_that_ends_itself_leaves_no_report(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(QUITTING)
    ended = aotlens("why", "script.py", cwd=tmp_path)
    assert (ended.code, ended.out) == (2, "")
    assert ended.err == ("aotlens: error: script.py exited with code 7 before a report could be made\n")


BREAKING = """\
import torch

# what is compiled
@torch.compile(backend="eager")
def f(x):
    if x.sum() > 0:  # positive
        x = x * 2
    return x.sin()

print(f(torch.ones(4)))
print(f(-torch.ones(4)))
"""
FIXED = """\
import torch

# what is compiled
@torch.compile(backend="eager")
def f(x):
    # positive
    x = torch.where(x.sum() > 0, x * 2, x)
    return x.sin()

print(f(torch.ones(4)))
print(f(-torch.ones(4)))
"""


@pytest.mark.rotates
def test_fixes_that_passed_are_written_and_shown_first(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BREAKING)
    ended = aotlens("why", "--fix", "script.py", cwd=tmp_path)
    assert ended.code == 0
    assert script.read_text() == FIXED
    assert "✓ tested: Compute both sides and choose with torch.where" in ended.out
    assert "equal to eager: 2 calls (2 tensors), 2 lines of output" in " ".join(ended.out.split())
    assert "--- a/script.py\n+++ b/script.py\n" in ended.out
    assert "+    x = torch.where(x.sum() > 0, x * 2, x)\n" in ended.out
    assert ended.err.endswith("aotlens: wrote 1 fix to 1 file\n")


@pytest.mark.rotates
def test_fixes_that_are_tried_stand_in_the_report_and_no_file_is_written(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(BREAKING)
    ended = aotlens("why", "--try-fixes", "--format", "json", "script.py", cwd=tmp_path)
    assert script.read_text() == BREAKING
    report = loads(ended.out)
    assert report.dynamo is not None
    (entry,) = report.dynamo.breaks
    (fix,) = entry.fixes
    assert fix.title == "Compute both sides and choose with torch.where"
    (tried,) = report.dynamo.fixes
    assert tried.outcome is not None
    assert (tried.outcome.breaks_before, tried.outcome.breaks_after) == (1, 0)
    assert [(diagnostic.code, diagnostic.fixes) for diagnostic in report.diagnostics] == [("AL406", (fix,))]


def test_without_being_asked_no_edit_is_run(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(BREAKING)
    ended = aotlens("why", "script.py", cwd=tmp_path)
    assert "trying fixes" not in ended.err
    assert "`aotlens why --try-fixes SCRIPT` tries edits for 1 of these on copies" in ended.out


CHANGING = """\
import pathlib
import torch

@torch.compile(backend="eager")
def f(x):
    torch._dynamo.graph_break()
    return x.sin()

print(f(torch.ones(4)))
path = pathlib.Path("script.py")
path.write_text(path.read_text() + "# run\\n")
"""


@pytest.mark.rotates
def test_a_file_that_changes_while_it_runs_is_not_written(tmp_path: Path) -> None:
    script = tmp_path / "script.py"
    script.write_text(CHANGING)
    ended = aotlens("why", "--fix", "script.py", cwd=tmp_path)
    assert ended.code == 2
    assert "script.py was changed while the script ran, so nothing is written: run it again" in ended.err
    assert "sin()" in script.read_text()
    assert "graph_break()" in script.read_text()


SHARED_WRAPPER = """\
import torch
from torch import nn

class Logs(nn.Module):
    def forward(self, x):
        print("step")
        return x.sin()

first = torch.compile(nn.Sequential(nn.Linear(4, 4), Logs()), backend="eager")
second = torch.compile(nn.Sequential(nn.Linear(4, 4), nn.ReLU()), backend="eager")
alone = torch.compile(lambda x: x + 1, backend="eager")
for _ in range(3):
    first(torch.ones(2, 4)), second(torch.ones(2, 4)), alone(torch.ones(2))
"""


def test_a_module_that_the_break_of_another_leaves_in_eager_is_a_problem(tmp_path: Path) -> None:
    (tmp_path / "script.py").write_text(SHARED_WRAPPER)
    report = loads(aotlens("why", "--format", "json", "script.py", cwd=tmp_path).out)
    assert report.dynamo is not None
    (calls,) = report.dynamo.calls_in_eager
    assert (calls.name, calls.calls, calls.span.line if calls.span else 0) == ("Sequential", 3, 10)
    assert "Dynamo reuses what it compiled for another `Sequential`" in calls.reason
    text = aotlens("why", "script.py", cwd=tmp_path).out
    assert "1. 3 calls in eager in Sequential  script.py:10:10" in text
    assert [(item.code, item.severity) for item in report.diagnostics] == [
        ("AL405", "warning"),
        ("AL406", "information"),
    ]
