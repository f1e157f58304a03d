"""A program through `torch.compile(fn, backend=...)`: graph breaks, guards and recompiles included."""

from collections.abc import Callable
from typing import Any

import torch
from torch._dynamo.exc import BackendCompilerFailed

from aotlens.frontends.dynamo import dynamo_backend
from aotlens.options import CompileOptions
from tests.engine.checking import EagerRun
from tests.engine.judging import judge_beside
from tests.programs import Program

EAGER = CompileOptions(backend="eager")


def through_dynamo(fn: Callable[..., Any], args: tuple[Any, ...]) -> Callable[..., Any]:
    compiled = torch.compile(fn, backend=dynamo_backend(EAGER))

    def call(*args: Any) -> Any:
        try:
            return compiled(*args)
        except BackendCompilerFailed as error:  # what the backend refused stands within
            raise error.inner_exception from error

    return call


ALIASES = ("aliasing_inputs/", "metadata/", "mutation/", "views_of_inputs/", "views_of_intermediates/")
"""Files of which every program goes through Dynamo: mutation and aliasing again on Dynamo's graphs."""
NOT_DYNAMOS = {
    "aliasing_inputs/overlapping_start_to_require_grad",  # Dynamo fails, with its own eager backend too
    "storage_swaps/data_of_a_leaf_assigned",  # Dynamo's graph loses the gradient, with its eager backend too
    "metadata/detach_in_place_after_use",  # eager's backward raises; the compiled one has what it needs
    "metadata/view_from_before_its_input_is_detached_and_written",  # Dynamo fails, with its eager backend too
    "aliasing_inputs/complex_look_alone",  # Dynamo fails at such a base
    "modules/batch_norm_of_transposed",  # Dynamo's fake kernel refuses the view
    "modules/batch_norm_of_transposed_in_eval",
    "subclasses/some_of_what_is_wrapped_mutated",  # what is wrapped is an input too: refused
    "saved_hooks/hooks_with_layers_of_their_own",  # Dynamo loses what the hooks' graphs refer to,
    "saved_hooks/hooks_with_tensors_of_their_own",  # before a backend is called
}


def goes_through_dynamo(program: Program) -> bool:
    """Return True if a program's tags or its file ask for Dynamo."""
    aliases = "grid" not in program.tags and program.name.startswith(ALIASES)
    tagged = bool(program.tags & {"dynamo", "inductor", "dynamic"})
    return (tagged or aliases) and program.name not in NOT_DYNAMOS


def judge_dynamo(eager: EagerRun) -> None:
    """Compare with eager behind a Dynamo that remembers nothing."""
    torch.compiler.reset()
    try:
        judge_beside(eager, through_dynamo, grow="dynamic" in eager.program.tags)
    finally:
        torch.compiler.reset()
