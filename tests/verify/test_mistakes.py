"""The mistakes that users make most: one message each, of the user's line, whoever compiles the function."""

from pathlib import Path

import pytest
import torch

from aotlens.model.failure import Failure
from aotlens.options import CompileOptions
from aotlens.session.collector import Collector
from aotlens.session.driver import CompileRequest, Driver, Hooks
from aotlens.session.errors.failures import failure_of
from aotlens.session.run import run_compiled

LINE = 7
SCRIPT = """\
import torch
import aotlens


def f(x, w):
    y = x * 2
    return {mistake}


compiled = {compile}
compiled(torch.ones(4, 5), torch.ones(4, 6, requires_grad=True))
"""
MISTAKES = {
    "y @ w": "RuntimeError: ",
    "y @ w.double()[:, :5].t()": "RuntimeError: ",
    "torch.cat([y, w])": "RuntimeError: Sizes of tensors must match",
    "y.view(7, -1) + w": "RuntimeError: shape '[7, -1]' is invalid for input of size 20",
    "torch.nn.functional.linear(y, w)": "RuntimeError: ",
    "torch.nn.functional.embedding(y, w)": "RuntimeError: Expected tensor for argument #1 'indices'",
    "y[w.shape[0] + 3]": "IndexError: index 7 is out of bounds for dimension 0 with size 4",
    "y.sum(dim=5)": "IndexError: Dimension out of range",
    "y.missing + w": "AttributeError: 'Tensor' object has no attribute 'missing'",
    "y * {'a': w}['b']": "KeyError: 'b'",
    "undefined(y, w)": "NameError: name 'undefined' is not defined",
    "1 / 0 + w": "ZeroDivisionError: division by zero",
}
MET_WHEN_IT_RUNS = {
    "y[torch.tensor([9])] + w.sum()": "IndexError: index 9 is out of bounds for dimension 0 with size 4",
    "w.index_select(0, y[0]) + y.sum()": "RuntimeError: index_select(): Expected dtype int32 or int64",
}
"""No shape shows them, so the compiled graph does."""
WAYS = {
    "torch": "torch.compile(f)",
    "aotlens": "aotlens.compile(f)",
    "functorch": "aotlens.aot_function(f, aotlens.nop)",
}


def written(tmp_path: Path, mistake: str, way: str) -> str:
    torch._dynamo.reset()
    script = tmp_path / "mistaken.py"
    script.write_text(SCRIPT.format(mistake=mistake, compile=WAYS[way]), encoding="utf-8")
    return str(script)


def failures(script: str) -> list[Failure]:
    """All that a trace of the script says went wrong."""
    collector = Collector(script)
    try:
        Driver(CompileRequest(script, None, (), CompileOptions(backend="eager")), collector, Hooks()).run()
    except Exception as error:  # noqa: BLE001 (user code may raise anything)
        return [*collector.failures, failure_of(error, script)]
    return collector.failures


def judge(found: Failure, script: str, said: str, line: int = LINE) -> None:
    assert (found.kind, found.file, found.line, found.exit_code) == ("user", script, line, 2)
    assert found.message.startswith(f"{script}:{line} raised {said}")
    *frames, last = found.traceback.rstrip().splitlines()
    assert last.startswith(said)
    assert [text for text in frames if text.startswith("  File") and script not in text] == []
    assert found.traceback.count("Traceback (most recent call last)") == 1


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mistake", MISTAKES)
def test_a_mistake_is_told_once_at_the_users_line(
    mistake: str, way: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = written(tmp_path, mistake, way)
    (found,) = failures(script)
    judge(found, script, MISTAKES[mistake])
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("mistake", MET_WHEN_IT_RUNS)
@pytest.mark.parametrize(("way", "line"), [("torch", LINE), ("aotlens", LINE), ("functorch", 11)])
def test_a_mistake_that_the_compiled_graph_meets_is_not_ours(
    mistake: str, way: str, line: int, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    script = written(tmp_path, mistake, way)
    (found,) = failures(script)
    judge(found, script, MET_WHEN_IT_RUNS[mistake], line)
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("mistake", ["y @ w", "y @ w.double()[:, :5].t()", "y[torch.tensor([9])] + w.sum()"])
def test_a_script_that_is_run_tells_the_same(mistake: str, way: str, tmp_path: Path) -> None:
    script = written(tmp_path, mistake, way)
    found = run_compiled(script, (), CompileOptions(backend="eager"), verify=False).end.failure
    assert found is not None
    line = 11 if way == "functorch" and mistake in MET_WHEN_IT_RUNS else LINE
    judge(found, script, {**MISTAKES, **MET_WHEN_IT_RUNS}[mistake], line)
