"""A mismatch as a small script that differs by itself."""

from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from aotlens.options import CompileOptions
from aotlens.verify.locate.minimise import minimise
from aotlens.verify.targets import check_function
from tests.command import forked
from tests.programs.program import leaf, plain

WRONG_BACKEND = """
import torch

aten = torch.ops.aten


def cos_is_sin(module, inputs):
    for node in module.graph.nodes:
        if node.target is aten.cos.default:
            node.target = aten.sin.default
    module.recompile()
    return module
"""


def layer(x: Tensor, w: Tensor, table: Tensor) -> tuple[Tensor, Tensor]:
    y = torch.sin(x) @ w
    y.mul_(2)
    z = functional.gelu(y + table[1:5]).t()
    return z.cos().sum(0), y.mean()


@pytest.fixture
def wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CompileOptions:
    (tmp_path / "wrong_backend.py").write_text(WRONG_BACKEND)
    monkeypatch.syspath_prepend(str(tmp_path))
    from wrong_backend import cos_is_sin  # type: ignore[import-not-found]

    return CompileOptions(cos_is_sin)


@pytest.mark.rotates
def test_small_script_differs_by_itself(wrong: CompileOptions, tmp_path: Path) -> None:
    torch.manual_seed(0)
    checked = check_function(wrong, layer, (leaf(4, 4), leaf(4, 4), plain(6, 4)), {})
    assert not checked.verification.ok
    file = tmp_path / "small.py"
    assert minimise(checked, wrong, file) == (
        f"minimised to 1 operator: `python {file}` ends with exit code 1"
    )
    text = file.read_text()
    assert "aten_cos(" in text
    assert "aten_sin(" not in text
    right = WRONG_BACKEND.replace("node.target = aten.sin.default", "pass")
    (tmp_path / "wrong_backend.py").write_text(right)
    assert forked(file).code == 0


def test_what_cannot_be_written_is_said(tmp_path: Path) -> None:
    options = CompileOptions(lambda module, inputs: lambda *values: (values[0] + 1,))
    checked = check_function(options, lambda x: x.sin(), (plain(3),), {})
    said = minimise(checked, options, tmp_path / "small.py")
    assert said == "not minimised: the backend has no name to import"
