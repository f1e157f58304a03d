"""Figures of the table of GPUs against tables of others that are installed here, and against compilers."""

from importlib.util import find_spec

import pytest
import torch
from torch._inductor.analysis.device_info import lookup_device_info

from aotlens.model.gpus.names import find_target

IN_TORCH = ("H100", "A100", "L4")
"""The GPUs of torch's own table of data sheets that are NVIDIA's."""
MISTAKEN = {("L4", "bandwidth")}
"""What torch's table copies from another row: an L4 has 300 GB/s, by its data sheet."""


@pytest.mark.parametrize("name", IN_TORCH)
def test_torchs_table_of_data_sheets_agrees(name: str) -> None:
    target, known = find_target(name), lookup_device_info(f"NVIDIA {name}")
    assert known is not None
    if not hasattr(known, "tops_sparsity_factor"):
        pytest.skip("the table of this torch mixes dense and sparse rates")
    sparse = 2 if name == "L4" else known.tops_sparsity_factor  # of the L4 it is not said there
    dense = {
        "tf32": known.tops["torch.tf32"] / sparse,
        "bf16": known.tops[torch.bfloat16] / sparse,
        "i8": known.tops[torch.int8] / sparse,
    }
    found = {dtype: target.peak_flops(dtype, "matrix") / 1e12 for dtype in dense}
    assert found == pytest.approx(dense, rel=0.005)
    assert target.memory_gib == known.dram_gb
    if (name, "bandwidth") not in MISTAKEN:
        assert target.bandwidth_gb_per_s == known.dram_bw_gbs


@pytest.mark.parametrize("name", ["A100", "RTX 4090", "H100 PCIe", "B200"])
def test_tritons_profiler_agrees(name: str) -> None:
    """It derives the rate of 8-bit types from the clock and the multiprocessors; B200's is not published."""
    if find_spec("triton") is None:
        pytest.skip("the table comes with Triton")
    from triton.profiler.specs import max_flops

    target = find_target(name)
    architecture = target.sm.removeprefix("sm_")
    theirs = max_flops("CUDA", architecture, 16, target.multiprocessors, target.clock_mhz * 1e3)
    assert target.peak_flops("f16", "matrix") == pytest.approx(theirs, rel=0.06)
