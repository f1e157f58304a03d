"""Evaluation and the saving of checkpoints are phases of their own; what looks like them is training."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import CodeType

import pytest
import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from aotlens.fit.observer import observing_memory
from aotlens.fit.other_phases import OtherPhases
from aotlens.fit.step import fit_of
from aotlens.model.codec import loads
from aotlens.model.fit import Fit
from aotlens.torch_api.fake.tensors import FakeTensorMode
from tests.command import aotlens

ROWS, WIDTH = 64, 8


def train(between: Callable[[nn.Linear, torch.Tensor], object], is_reentrant: bool = False) -> Fit:
    """Train for three steps, and do something else after each of them."""
    with FakeTensorMode(), observing_memory() as observer:
        layer, teacher = nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, WIDTH)
        rows = torch.ones(ROWS, WIDTH, requires_grad=is_reentrant)
        update = torch.optim.SGD(layer.parameters(), 0.1, foreach=False)
        for _ in range(4):
            with torch.no_grad():
                target = teacher(rows)
            result = checkpoint(layer, rows, use_reentrant=True) if is_reentrant else layer(rows)
            nn.functional.mse_loss(result, target).backward()
            update.step()
            update.zero_grad()
            between(layer, rows)
        return fit_of(observer)


def evaluate(layer: nn.Linear, rows: torch.Tensor) -> None:
    with torch.no_grad():
        nn.functional.mse_loss(layer(torch.cat((rows, rows))), torch.ones(2 * ROWS, WIDTH))


def average(layer: nn.Linear, rows: torch.Tensor) -> None:
    with torch.no_grad():
        torch.zeros(WIDTH, WIDTH).mul_(0.9).add_(layer.weight, alpha=0.1)


def test_evaluation_is_recognised() -> None:
    fit = train(evaluate)
    phases = {row.phase: row.peak_bytes for row in fit.phases}
    assert phases["evaluation"] >= 4 * WIDTH * ROWS * 2 * 4
    assert [row.phase for row in fit.run_phases] == ["evaluation"]


def test_teachers_checkpoints_and_averages_are_no_evaluation() -> None:
    for is_reentrant in (False, True):
        fit = train(average, is_reentrant)
        assert "evaluation" not in {row.phase for row in (*fit.phases, *fit.run_phases)}


@dataclass(slots=True, eq=False)
class Life:
    """A storage, as far as phases read it."""

    kind: str | None = None
    phase: str = "forward"


@pytest.mark.parametrize(("code", "phase"), [(None, "evaluation"), (train.__code__, "forward")])
def test_a_graph_is_training_as_a_whole(code: CodeType | None, phase: str) -> None:
    """A graph may also return a value for an `if`, which no operator with gradients reads."""
    phases, aten = OtherPhases(), torch.ops.aten
    weight, rows, hidden, largest = Life("parameter"), Life(), Life(), Life()
    with torch.no_grad():
        for operator, read, made in ((aten.mm, [weight, rows], hidden), (aten.amax, [hidden], largest)):
            phases.graph_runs(code)
            phases.operator_runs(operator.default, read, is_recorded=False, is_backward=False)
            phases.storage_allocated(made)
    phases.graph_runs(None)
    phases.operator_runs(aten.relu.default, [hidden], is_recorded=True, is_backward=False)
    phases.settle()
    assert (hidden.phase, largest.phase) == ("forward", phase)


SCRIPT = """
import torch
layer = torch.nn.Linear(1024, 1024)
update = torch.optim.SGD(layer.parameters(), 0.1)
for _ in range(4):
    layer(torch.ones(8, 1024)).sum().backward()
    update.step()
    update.zero_grad()
with torch.no_grad():
    layer(torch.ones(1024, 1024)).argmax(1)
state = {name: value.clone() for name, value in layer.state_dict().items()}
torch.save(state, "best.pt")
"""


def test_the_run_to_its_end_has_both_and_writes_no_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ended = aotlens("fit", "--to-end", "--format", "json", "train.py", cwd=tmp_path)
    fit = loads(ended.out).fit
    assert fit is not None
    peaks = {row.phase: row.peak_bytes for row in fit.run_phases}
    assert peaks["evaluation"] >= 12 << 20  # weight, rows, and what the layer returns
    assert 8 << 20 <= peaks["checkpoint saving"] < 12 << 20
    assert not (tmp_path / "best.pt").exists()
    assert "`torch.save` writes no file, because fake tensors have no values" in fit.assumptions


RELOADS = """
import io, torch
from torch import nn
net = nn.Sequential(nn.Linear(16, 16), nn.Dropout())
update = torch.optim.SGD(net.parameters(), 0.1, momentum=0.9)
for step in range(4):
    net(torch.ones(8, 16)).sum().backward()
    update.step()
    update.zero_grad()
    torch.save({"net": net.state_dict(), "update": update.state_dict(), "step": step}, "best.pt")
with open("whole.pt", "wb") as file:
    torch.save(net, file)
memory = io.BytesIO()
torch.save(torch.ones(3, 2), memory)
best = torch.load("best.pt", map_location="cpu")
net.load_state_dict(best["net"])
update.load_state_dict(best["update"])
with open("whole.pt", "rb") as file:
    net = torch.load(file, weights_only=False)
memory.seek(0)
print(best["step"], torch.load(memory).shape, net(torch.ones(2, 16)).shape)
"""


def test_what_was_saved_can_be_loaded_without_a_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(RELOADS)
    ended = aotlens("fit", "--to-end", "train.py", cwd=tmp_path)
    assert ended.code == 0, ended.err
    assert "3 torch.Size([3, 2]) torch.Size([2, 16])" in ended.err
