"""The list of GPUs marks the one that a trace would use."""

import pytest

from aotlens.view.tabs.gpus import ROWS, gpu_row


@pytest.mark.parametrize(
    ("current", "chosen"),
    [("A10", "A10"), ("a100", "A100 80GB"), ("4090", "RTX 4090"), ("sm_90", "H100 SXM"), (None, "")],
)
def test_the_marked_gpu_is_the_one_of_the_trace(current: str | None, chosen: str) -> None:
    gpu = ROWS[gpu_row(current)]
    assert (gpu.name if gpu is not None else "") == chosen
