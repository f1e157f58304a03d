"""The GPUs that pickers offer are those for which code can be generated."""

from aotlens.codegen.gpu.targets import TARGETS
from aotlens.view.gpus import GPU_CHOICES


def test_pickers_offer_every_gpu_with_its_figures() -> None:
    offered = [(choice.name, choice.sm, choice.memory_gib) for choice in GPU_CHOICES]
    assert offered == [(target.name, target.sm, target.memory_gib) for target in TARGETS]
