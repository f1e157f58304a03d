"""What cuBLAS keeps counts once for each thread that calls it, in the peak and in what is reserved."""

from pathlib import Path

import pytest
import torch

from aotlens.fit.library_workspaces import LibraryWorkspaces
from aotlens.model.codec import loads
from aotlens.model.fit import Fit
from tests.command import aotlens

MIB = 1 << 20
TRAINING = """
import torch
layer = torch.nn.Linear(512, 512, bias={bias}, device="{device}")
optimizer = torch.optim.SGD(layer.parameters())
for _ in range(3):
    layer(torch.ones(256, 512, device="{device}")).sum().backward()
    optimizer.step()
"""


def fit_of(script: Path, gpu: str) -> Fit:
    ended = aotlens("fit", "--gpu", gpu, "--format", "json", script, cwd=script.parent)
    assert ended.code == 0, ended.err
    fit = loads(ended.out).fit
    assert fit is not None
    return fit


def workspaces(tmp_path: Path, gpu: str, bias: bool = True, device: str = "cuda") -> list[tuple[str, int]]:
    """Return the phase and bytes of each workspace."""
    script = tmp_path / "train.py"
    script.write_text(TRAINING.format(bias=bias, device=device), encoding="utf-8")
    fit = fit_of(script, gpu)
    kinds = {row.kind: row.bytes for row in fit.by_kind}
    found = [
        (each.span.file if each.span is not None else "", each.bytes)
        for each in fit.allocations
        if each.kind == "library workspace"
    ]
    assert sum(size for _, size in found) == kinds.get("library workspace", 0)
    assert all(file.endswith("train.py") for file, _ in found)
    return found


def sizes(found: list[tuple[str, int]]) -> list[int]:
    return [size for _, size in found]


@pytest.mark.rotates
def test_forward_and_backward_have_their_own(tmp_path: Path) -> None:
    """As the allocator's history on an H100 has it: the bias is added by cuBLASLt, in the forward alone."""
    assert sizes(workspaces(tmp_path, "h100")) == [32 * MIB, MIB, 32 * MIB]
    assert sizes(workspaces(tmp_path, "h100", bias=False)) == [32 * MIB, 32 * MIB]


@pytest.mark.rotates
def test_other_gpus_and_settings_have_other_sizes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert sizes(workspaces(tmp_path, "a100")) == [8_519_680, MIB, 8_519_680]
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
    monkeypatch.setenv("CUBLASLT_WORKSPACE_SIZE", "2048")
    assert sizes(workspaces(tmp_path, "h100")) == [32 * MIB, 2 * MIB, 32 * MIB]
    monkeypatch.setenv("CUBLAS_WORKSPACE_CONFIG", ":0:0")
    assert sizes(workspaces(tmp_path, "h100", bias=False)) == []


def test_tensors_of_the_cpu_need_none(tmp_path: Path) -> None:
    assert workspaces(tmp_path, "h100", device="cpu") == []


def test_each_is_allocated_once() -> None:
    kept = LibraryWorkspaces(is_hopper=False)
    x = torch.zeros(2, 3)
    product = (torch.ops.aten.mm.default, (x, x.t()), False)
    assert len(list(kept.added_by(*product))) == 1
    assert list(kept.added_by(*product)) == []
    assert list(kept.added_by(torch.ops.aten.sin.default, (x,), True)) == []


DROPPED = """
import torch
{setup}
class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(64, 64, device="cuda")
    def forward(self, x):
        hidden = torch.sin(x)
        return torch.nn.functional.dropout(self.layer(hidden), 0.5)
net = Net()
optimizer = torch.optim.SGD(net.parameters())
compiled = torch.compile(net)
for _ in range(3):
    compiled(torch.ones(32, 64, device="cuda")).sum().backward()
    optimizer.step()
"""


@pytest.mark.rotates
@pytest.mark.parametrize("setup", ["", 'torch.set_default_device("cuda")'], ids=["", "default device"])
def test_dropout_is_one_operator_and_each_operator_has_its_line(tmp_path: Path, setup: str) -> None:
    """As on a GPU; a default device is a mode, whose frames are between compiled code and its operators."""
    script = tmp_path / "train.py"
    script.write_text(DROPPED.format(setup=setup), encoding="utf-8")
    lines = {
        each.op: each.span.line
        for each in fit_of(script, "h100").allocations
        if each.phase == "forward" and each.span is not None
    }
    assert lines["aten.sin.default"] == 9
    assert lines["aten.addmm.default"] == lines["aten.native_dropout.default"] == 10
    assert "aten.bernoulli.p" not in lines
