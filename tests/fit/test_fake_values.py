"""The integers that a script reads from fake tensors, and whether sizes depend on them."""

from pathlib import Path

import numpy as np
import pytest
import torch

from aotlens.fit.fake_values import MOST_ELEMENTS, reading_without_values
from aotlens.fit.observer import Observer, observing_memory
from aotlens.fit.stopping import StepWatch
from aotlens.session.collector import StopScript
from aotlens.torch_api.fake.tensors import FakeTensor, FakeTensorMode
from tests.command import aotlens


def test_small_integers_are_known_and_what_follows_from_them() -> None:
    real = torch.tensor([4, 9])
    with FakeTensorMode(allow_non_fake_inputs=True), reading_without_values(), observing_memory() as observer:
        positions = torch.randint(5, 9, (64,))
        assert isinstance(positions, FakeTensor)
        assert {int(position) for position in positions} <= set(range(5, 9))
        assert torch.tensor([[3, 1], [7, 2]]).amax(1).tolist() == [3, 7]
        assert sorted(torch.randperm(5).tolist()) == list(range(5))
        assert (real.max().item(), real[0].item()) == (9, 4)
    assert not observer.placeholders.values_read


def test_large_integers_and_uninitialized_ones_are_placeholders() -> None:
    with FakeTensorMode(), reading_without_values(), observing_memory() as observer:
        tokens = torch.randint(5, 9, (MOST_ELEMENTS + 1,))
        assert (tokens[0].item(), torch.empty(3, dtype=torch.int64)[0].item()) == (1, 1)
        known = torch.zeros(3, dtype=torch.int64)
        known[1] = tokens[0]
        assert known[1].item() == 1
    assert len(observer.placeholders.integers_read) == 3


def test_texts_and_arrays_of_values_hold_placeholders() -> None:
    with FakeTensorMode(), reading_without_values(), observing_memory() as observer:
        loss = torch.rand(4, requires_grad=True).sum()
        assert (f"{loss:.2f}", f"{torch.tensor(7):03d}") == ("0.00", "007")
        assert loss.detach().numpy().shape == ()
        rows = np.asarray(torch.rand(2, 3, dtype=torch.float64))
        assert (rows.shape, rows.dtype) == ((2, 3), np.dtype("float64"))
        assert not rows.any()
        assert torch.tensor([3, 1]).numpy().tolist() == [3, 1]
        assert torch.empty(0, 3).numpy().shape == (0, 3)
        with pytest.raises(RuntimeError, match="requires grad"):
            loss.numpy()
        with pytest.raises(TypeError):
            f"{torch.rand(3):.2f}"
        with pytest.raises(TypeError, match="cpu"):
            torch.rand(3, device="meta").numpy()
    assert sum(observer.placeholders.values_read.values()) == 3
    assert f"{torch.tensor(0.5):.2f}" == "0.50"
    assert torch.ones(2).numpy().tolist() == [1, 1]


SCRIPT = """
import torch
layer = torch.nn.Linear(8, 8)
update = torch.optim.SGD(layer.parameters(), 0.1)
for _ in range(12):
    classes = layer(torch.ones(32, 8)).argmax(1)
    number = int((classes == 3).sum())
    layer(torch.ones({rows}, 8)).sum().backward()
    update.step()
    update.zero_grad()
    {after}
"""


def fit_of(folder: Path, rows: str, after: str = "") -> str:
    (folder / "train.py").write_text(SCRIPT.format(rows=rows, after=after))
    ended = aotlens("fit", "train.py", cwd=folder)
    assert ended.code == 0
    return ended.out


def test_an_accuracy_determines_no_size(tmp_path: Path) -> None:
    assert not fit_of(tmp_path, "32", "print(number)").startswith("Incomplete")


def test_a_size_that_depends_on_an_integer_is_recognised(tmp_path: Path) -> None:
    output = fit_of(tmp_path, "16 * number")
    assert output.startswith("Incomplete")
    assert "train.py:7" in output.splitlines()[0]


def test_a_script_that_fails_with_other_integers_is_incomplete(tmp_path: Path) -> None:
    output = fit_of(tmp_path, "[32, 32][number]")
    assert output.startswith("Incomplete")
    assert "at the peak of step 3" in output


def test_the_step_with_other_integers_is_not_reported() -> None:
    with FakeTensorMode(), observing_memory(Observer(StepWatch(to_end=False).after_step)) as observer:
        layer = torch.nn.Linear(8, 8)
        update = torch.optim.SGD(layer.parameters(), 0.1)
        try:
            while True:
                layer(torch.ones(layer(torch.ones(4, 8)).argmax().item(), 8)).sum().backward()
                update.step()
                update.zero_grad()
        except StopScript:
            pass
    assert len(observer.boundaries) == 3
