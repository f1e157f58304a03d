"""A sample of the shared programs as code for a GPU, beside eager; `make test-gpu-numbers` runs all."""

import pytest

pytest.importorskip("triton", reason="code for a GPU needs Triton")

from tests.gpu_numbers import judged

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns

SAMPLE = (
    "mutation/index_put",
    "views_of_intermediates/all_kinds",
    "autograd/cross_entropy",
    "autograd/tensor_constant",
    "randomness/two_dropouts",
    "custom_operators/writes_to_an_intermediate",
    "data_dependent/item_as_factor",
)
"""One of each kind: what the wrapper does, what kernels compute, draws, the user's own operators, sizes."""


@pytest.mark.rotates
@pytest.mark.parametrize("name", SAMPLE)
def test_a_program_agrees(name: str) -> None:
    verdict = judged(name, "sm_90")
    assert verdict.kind == "agrees", verdict.message
