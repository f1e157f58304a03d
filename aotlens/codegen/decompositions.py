"""The operators that are taken apart while a function is recorded."""

from aotlens.capture.operators import Decompositions
from aotlens.capture.philox_rules import with_random_rules
from aotlens.codegen.inductor import decompositions as inductor_decompositions
from aotlens.options import CompileOptions
from aotlens.torch_api import functionalizes_rng


def decompositions_for(options: CompileOptions) -> Decompositions:
    """By the options, or as the backend asks."""
    chosen = _chosen(options)
    return with_random_rules(chosen) if options.functional_random or functionalizes_rng() else chosen


def _chosen(options: CompileOptions) -> Decompositions:
    if options.decompositions is not None:
        return options.decompositions
    if options.for_inductor:
        return inductor_decompositions(dict(options.inductor_config))
    return {}
