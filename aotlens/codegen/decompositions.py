"""The decompositions with which a function is recorded."""

import torch

from aotlens.capture.operators import Decompositions, aten
from aotlens.capture.rng.random_op_rules import with_random_rules
from aotlens.codegen.inductor import decompositions as inductor_decompositions
from aotlens.options import CompileOptions
from aotlens.torch_api.operators import get_decompositions
from aotlens.torch_api.rng import functionalizes_rng

CUDNN_BATCH_NORMS = (aten.cudnn_batch_norm, aten.cudnn_batch_norm_backward)
"""Batch norm operators on a GPU, which mutate the running averages without declaring it.

They decompose to the operator that declares the mutation.
"""


def decompositions_for(options: CompileOptions) -> Decompositions:
    """Return the decompositions that the options or the backend ask for."""
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
