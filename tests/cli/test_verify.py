"""`aotlens verify` as a user sees it: what differs and where, what is not deterministic, what is fine."""

from pathlib import Path

import pytest

from tests.command import aotlens

SCRIPT = """\
import time

import torch


# aotlens: example f32[3, 4]
def lies(x):
    y = x.sin()
    return y * (2 if type(x) is torch.Tensor else 3)  # what is recorded is no plain tensor


# aotlens: example f32[3, 4]
def unsteady(x):
    return x * (time.perf_counter_ns() % 9973)


# aotlens: example f32[3, 4] grad
def fine(x):
    return x.cos()
"""


def test_verdicts(tmp_path: Path) -> None:
    script, small = tmp_path / "targets.py", tmp_path / "small.py"
    script.write_text(SCRIPT)
    ended = aotlens("verify", script, "--backend", "eager", "--minimise", small)
    assert ended.code == 1
    lines = [line.strip() for line in ended.out.splitlines()]
    assert lines[0].startswith("differs       lies: value of out: compiled [")
    assert lines[1] == "the first stage that differs is `captured`: `out` is not what eager gives"
    assert lines[2].startswith("its first node that differs is `mul` (aten.mul.Tensor): it is [")
    assert lines[3].endswith("targets.py:9:12: y * (2 if type(x) is torch.Tensor else 3)")
    assert lines[4].startswith("not minimised: the captured operators by themselves equal eager")
    assert lines[5].startswith("not verified  unsteady: eager differs from eager in the value of out, with")
    assert lines[6].startswith("equal         fine: 1 value, 1 gradient, on random arguments too")
    assert not small.exists()


STEPS = """\
import torch

model = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)


@torch.compile
def step(x):
    loss = model(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    return loss


for _ in range(2):
    step(torch.randn(8, 4))
"""


@pytest.mark.rotates
def test_a_graph_that_holds_an_optimizers_tensors(tmp_path: Path) -> None:
    script = tmp_path / "steps.py"
    script.write_text(STEPS)
    ended = aotlens("verify", script, "--backend", "eager")
    assert ended.code == 0, ended.err
    assert "4 mutated inputs" in ended.out


CALLED_WRONGLY = """\
import torch


@torch.compile
def look_up(table, index):
    return table[index].sum()


@torch.compile
def doubled(x):
    return x * 2


doubled(torch.ones(3))
try:
    look_up(torch.ones(3, requires_grad=True), torch.tensor([7]))
except IndexError:
    pass
"""


NOT_COMPARED = "eager raises IndexError: index 7 is out of bounds for dimension 0 with size 3"


@pytest.mark.rotates
def test_what_could_not_be_compared_comes_first_and_fails(tmp_path: Path) -> None:
    script = tmp_path / "called.py"
    script.write_text(CALLED_WRONGLY)
    strict = aotlens("verify", "--backend", "eager", script)
    allowed = aotlens("verify", "--backend", "eager", "--allow-unverified", script)
    assert (strict.code, allowed.code) == (1, 0), strict.err
    assert strict.out == allowed.out
    lines = strict.out.splitlines()
    assert lines[0] == f"not verified  look_up: {NOT_COMPARED}"
    assert lines[1].startswith("equal         doubled: 1 value, 0 gradients")


@pytest.mark.rotates
def test_a_run_whose_calls_could_not_be_compared_fails(tmp_path: Path) -> None:
    script = tmp_path / "called.py"
    script.write_text(CALLED_WRONGLY)
    strict = aotlens("run", "--verify", "--backend", "eager", script)
    allowed = aotlens("run", "--verify", "--allow-unverified", "--backend", "eager", script)
    assert (strict.code, allowed.code) == (1, 0), strict.err
    assert NOT_COMPARED in " ".join(strict.err.split())
