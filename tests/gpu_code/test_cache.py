"""Generated code is found again by content: the same rows, without Inductor and Triton."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from aotlens.codegen.gpu.fingerprint import program_fingerprint
from aotlens.disk_cache import open_store
from aotlens.ir.fingerprint import NoFingerprintError
from aotlens.model.report import Target
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("AOTLENS_CACHE_DIR", str(tmp_path))
    return tmp_path


def scaled(x: Tensor) -> Tensor:
    return (x * 0.5).exp()


def scaled_more(x: Tensor) -> Tensor:
    return (x * 0.75).exp()


def _target(function: Any, *args: Any, texts: tuple[str, ...] = ("ptx", "sass")) -> Target:
    options = CompileOptions("eager", gpu="a100", gpu_texts=texts)
    return compile_direct(function, args, {}, options).target()


def _nothing_is_generated(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*args: Any) -> Any:
        raise AssertionError("a child was started")

    monkeypatch.setattr("aotlens.codegen.gpu.child_processes._start", refuse)


@pytest.mark.rotates
def test_the_same_rows_without_a_child(monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.randn(64, 32, requires_grad=True)
    first = _target(scaled, x)
    _nothing_is_generated(monkeypatch)
    again = _target(scaled, x)
    assert [kernel.phase for kernel in first.kernels] == ["forward", "backward"]
    assert again.kernels == first.kernels
    assert again.gpu_assumptions == first.gpu_assumptions


@pytest.mark.rotates
def test_entries_that_are_damaged_or_fit_no_record_are_made_again(folder: Path) -> None:
    x = torch.randn(8)
    first = _target(scaled, x)
    store = open_store()
    assert store is not None
    for path in [path for path in folder.rglob("*") if path.is_file()]:
        if path.parents[1].name == "gpu-kernels":
            store.put("gpu-kernels", path.name, {"unheard": 1})
        else:
            path.write_bytes(b"\x80\x04 not ours")
    assert _target(scaled, x).kernels == first.kernels


def _key(function: Any, *args: Any, **config: Any) -> str:
    parts = compile_direct(function, args, {}, CompileOptions("eager", gpu="a100")).parts
    return program_fingerprint(parts, config)


def test_a_program_is_known_by_what_its_code_depends_on() -> None:
    x = torch.randn(4, 4)
    same = _key(scaled, x)
    assert _key(scaled, torch.ones(4, 4)) == same  # values are no part of the code
    others = [
        _key(scaled_more, x),
        _key(scaled, torch.randn(4, 5)),
        _key(scaled, x.t()),
        _key(scaled, x.double()),
        _key(scaled, x.clone().requires_grad_()),
        _key(scaled, x, max_autotune=True),
    ]
    assert len({same, *others}) == 1 + len(others)


def test_constants_count_by_value() -> None:
    def with_constant(*values: float) -> Any:
        return lambda x: x + torch.tensor(values)

    x = torch.randn(2)
    assert _key(with_constant(1.0, 2.0), x) == _key(with_constant(1.0, 2.0), x)
    assert _key(with_constant(1.0, 2.0), x) != _key(with_constant(1.0, 3.0), x)


def test_symbolic_sizes_are_generated_each_time() -> None:
    options = CompileOptions("eager", gpu="a100", dynamic=True)
    parts = compile_direct(scaled, (torch.randn(4, 4),), {}, options).parts
    with pytest.raises(NoFingerprintError, match="symbolic sizes"):
        program_fingerprint(parts, {})
