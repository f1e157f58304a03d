"""Machine code as text: several kernels at once read as each by itself."""

from typing import Any

import pytest
import torch
from torch import Tensor

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from aotlens.codegen.gpu.generation import generate_for_gpu
from aotlens.codegen.gpu.machine_code.cubin import read_cubin
from aotlens.codegen.gpu.machine_code.cubin_merge import merge_cubins
from aotlens.codegen.gpu.machine_code.disassembly import disassembled
from aotlens.codegen.gpu.records import GpuRequest
from aotlens.errors import BackendError
from aotlens.model.gpus.names import find_target
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct


def sines(x: Tensor) -> Tensor:
    """A pointwise kernel with a table of constants and a call, and two reductions."""
    return (x.sin() @ x).softmax(-1).sum(0)


@pytest.fixture(scope="module", params=["sm_80", "sm_100"])
def cubins(request: pytest.FixtureRequest) -> dict[str, bytes]:
    parts = compile_direct(sines, (torch.randn(64, 64),), {}, CompileOptions("eager", gpu="h100")).parts
    made = generate_for_gpu(parts, GpuRequest(find_target(request.param), {}, (), 120.0))
    return {name: kernel.cubin for (_, name), kernel in made.kernels.items()}


@pytest.mark.rotates
def test_kernels_together_read_as_each_by_itself(
    cubins: dict[str, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert len(cubins) >= 2
    assert read_cubin(merge_cubins(tuple(cubins.values()))).keys() == cubins.keys()
    together = dict(disassembled(cubins))
    assert together.keys() == cubins.keys()
    assert all("EXIT" in text for text in together.values())

    def refuse(files: Any) -> bytes:
        raise BackendError("not together")

    monkeypatch.setattr("aotlens.codegen.gpu.machine_code.disassembly.merge_cubins", refuse)
    assert dict(disassembled(cubins)) == together


def test_what_is_no_cubin_is_refused() -> None:
    for damaged in (b"", b"\x7fELF", b"\x7fELF" + bytes(200)):
        with pytest.raises(BackendError, match="cannot be read together"):
            merge_cubins([damaged])
