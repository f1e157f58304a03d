"""The operators that are taken apart while a function is recorded."""

import torch

from aotlens.capture.operators import Decompositions, aten
from aotlens.capture.rng.random_op_rules import with_random_rules
from aotlens.codegen.inductor import decompositions as inductor_decompositions
from aotlens.options import CompileOptions
from aotlens.torch_api.operators import get_decompositions
from aotlens.torch_api.rng import functionalizes_rng

CUDNN_BATCH_NORMS = (aten.cudnn_batch_norm, aten.cudnn_batch_norm_backward)
"""What a batch norm on a GPU is: it writes to the running averages and does not say so.

Taken apart, it is the operator that is known to."""


def decompositions_for(options: CompileOptions) -> Decompositions:
    """By the options, or as the backend asks."""
    chosen = _chosen(options)
    if torch.cuda.is_initialized():
        chosen = {**get_decompositions(list(CUDNN_BATCH_NORMS)), **chosen}
    return with_random_rules(chosen) if options.functional_random or functionalizes_rng() else chosen


def _chosen(options: CompileOptions) -> Decompositions:
    if options.decompositions is not None:
        return options.decompositions
    if options.for_inductor:
        return inductor_decompositions(dict(options.inductor_config))
    return {}
