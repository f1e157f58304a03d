"""`aotlens fit` on scripts and on memory snapshots."""

from pathlib import Path

import pytest

from aotlens.model.codec import loads
from tests.command import aotlens
from tests.fit.snapshot_files import failed_step, write


def test_who_held_memory_at_a_failure(tmp_path: Path) -> None:
    ended = aotlens("fit", write(tmp_path / "step.pickle", failed_step()))
    assert (ended.code, ended.err) == (0, "")
    assert ended.out.startswith("out of memory on device 0: 5.0 MiB were asked for at /job/model.py:41")


def test_a_snapshot_without_memory_is_named(tmp_path: Path) -> None:
    path = write(tmp_path / "empty.pickle", {"segments": [], "device_traces": [[]]})
    ended = aotlens("fit", path)
    assert (ended.code, ended.out) == (2, "")
    assert "it shows no memory on any device, and no failed allocation" in ended.err


SCRIPT = """
import sys
import torch
layer = torch.nn.Linear(int(sys.argv[1]), 1024, bias=False)
update = torch.optim.SGD(layer.parameters(), 0.1)
step = torch.compile(lambda rows: layer(rows).relu().sum())
for number in range(50):
    loss = step(torch.ones(8, layer.in_features))
    loss.backward()
    update.step()
    update.zero_grad()
    print(number, loss.item(), file=sys.stderr)
"""


@pytest.mark.rotates
def test_a_script_runs_until_its_steps_repeat(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ended = aotlens("fit", "--format", "json", "train.py", "1024", cwd=tmp_path)
    assert ended.code == 0
    fit = loads(ended.out).fit
    assert fit is not None
    assert (fit.step, fit.is_periodic, fit.is_fake) == (3, True, True)
    assert {(row.kind, row.bytes) for row in fit.by_kind} >= {("parameter", 4 << 20), ("gradient", 4 << 20)}
    assert "2 0.0" not in ended.err.splitlines()  # the third step ends the script


@pytest.mark.rotates
def test_a_model_larger_than_the_machine_does_not_fit_a_gpu(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ended = aotlens("fit", "--gpu", "h100", "train.py", str(40 << 20), cwd=tmp_path)
    assert ended.code == 1
    assert "does not fit H100 SXM" in ended.out
    assert "counted as if they were on h100" in ended.out


@pytest.mark.rotates
def test_sizes_that_depend_on_values_need_real_tensors(tmp_path: Path) -> None:
    (tmp_path / "sizes.py").write_text("import torch\nprint(torch.ones(5).nonzero().shape)\n")
    ended = aotlens("fit", "sizes.py", cwd=tmp_path)
    assert ended.code == 2
    assert "sizes.py:2" in ended.err
    assert "add --real" in ended.err
    real = aotlens("fit", "--real", "sizes.py", cwd=tmp_path)
    assert (real.code, "ran on real tensors" in real.out) == (0, True)


@pytest.mark.rotates
def test_page_has_curve_and_tables(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(SCRIPT)
    ended = aotlens("fit", "--format", "html", "-o", "page.html", "train.py", "1024", cwd=tmp_path)
    assert (ended.code, ended.out) == (0, "")
    page = (tmp_path / "page.html").read_text()
    assert "fit-curve" in page
    assert "backward\\u003c/text" in page
    assert "layer = torch.nn.Linear(int(sys.argv[1]), 1024, bias=False)" in page
