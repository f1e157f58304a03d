"""A GPU that is not there is believed in within one context only, and nothing of it is left behind."""

from typing import Any

import pytest
import torch
from torch._inductor.utils import run_and_get_code
from torch.utils._triton import has_triton

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from aotlens.codegen.gpu.offline.context import is_local_gpu, offline_gpu, replacements
from aotlens.codegen.gpu.offline.emulated_devices import properties_of
from aotlens.model.gpus.names import find_target
from aotlens.torch_api.gpu import compiling_modules

TARGET = find_target("h100")


def _raw(owner: Any, name: str) -> object:
    return vars(owner).get(name, "absent")


def _state() -> list[object]:
    return [_raw(one.owner, one.name) for one in replacements(TARGET)]


def test_every_name_has_its_reason() -> None:
    rows = replacements(TARGET)
    assert all(row.reason for row in rows)
    assert len({(id(row.owner), row.name) for row in rows}) == len(rows)


def test_every_replaced_name_of_torch_is_known_to_it() -> None:
    """A release of torch that renames one fails here, by name; a CPU build lacks the raw stream."""
    missing = [
        row.name
        for row in replacements(TARGET)
        if not hasattr(row.owner, row.name) and row.name != "_cuda_getCurrentRawStream"
    ]
    assert missing == []


def test_torch_answers_as_the_gpu_would() -> None:
    with offline_gpu(TARGET):
        assert torch.cuda.is_available()
        assert torch.cuda.get_device_capability() == (9, 0)
        assert torch.cuda.get_device_properties() == properties_of(TARGET)
    assert not torch.cuda.is_available()


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what a machine without a GPU answers")
def test_everything_is_put_back_after_an_error() -> None:
    with offline_gpu(TARGET):
        pass  # imports, and the interfaces that torch registers once
    before = _state()
    with pytest.raises(ZeroDivisionError), offline_gpu(TARGET):
        raise ZeroDivisionError
    assert _state() == before
    config = compiling_modules().config
    assert (config.force_disable_caches, config.compile_threads) != (True, 0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="asks what a machine without a GPU answers")
def test_no_answer_about_devices_is_remembered() -> None:
    before = has_triton()
    with offline_gpu(TARGET):
        assert has_triton()
    assert has_triton() == before


@pytest.mark.rotates
def test_code_for_the_cpu_is_the_same_before_and_after() -> None:
    before_code, before = _on_the_cpu()
    with offline_gpu(TARGET):
        assert torch.cuda.is_available()
    after_code, after = _on_the_cpu()
    assert after_code == before_code
    assert torch.equal(after, before)


def _on_the_cpu() -> tuple[str, torch.Tensor]:
    """Inductor's code for this machine, compiled anew."""
    torch.compiler.reset()
    function = torch.compile(lambda x: (x * 2).softmax(-1), options={"fx_graph_cache": False})
    result, (code,) = run_and_get_code(function, torch.arange(12.0).view(3, 4))
    return code[code.index("import torch") :], result  # a running number stands above


def test_nothing_is_replaced_where_the_gpu_is_the_machines_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """As far as can be told without one; `tests/gpu` asks a real one."""
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda: TARGET.compute_capability)
    before = _state()
    with offline_gpu(TARGET):
        assert _state() == before
    assert not is_local_gpu(find_target("a100"))


def test_to_a_child_of_a_process_that_uses_the_gpu_it_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    def refused() -> tuple[int, int]:
        raise RuntimeError("Cannot re-initialize CUDA in forked subprocess")

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(torch.cuda, "get_device_capability", refused)
    monkeypatch.setattr("aotlens.codegen.gpu.offline.context.forked_after_cuda", lambda: True)
    assert not is_local_gpu(TARGET)
