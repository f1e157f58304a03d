"""The flat inputs of a compiled target, in the order of its captured program."""

from collections.abc import Callable
from typing import Any

from aotlens.capture.inputs.module_tensors import module_tensors
from aotlens.compiled import Compiled
from aotlens.torch_api.operators import pytree
from aotlens.verify.world import World


def flat_inputs(compiled: Compiled, fn: Callable[..., Any], given: World) -> list[Any] | None:
    """Parameters and buffers, then the arguments; None where that is not what was captured."""
    if compiled.frontend == "dynamo":
        values = list(given.args)
    else:
        leaves = pytree.tree_leaves((given.args, dict(given.kwargs)))
        values = [*module_tensors(fn).values(), *leaves]
    return values if len(values) == len(compiled.captured.flat_inputs) else None
