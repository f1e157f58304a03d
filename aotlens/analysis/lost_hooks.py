"""Hooks that the function registers on views which the wrapper regenerates: unsupported.

Invariant: the wrapper regenerates an output from its base outside the recorded graph, so nothing between the
base and the output has a hook.
"""

from collections.abc import Sequence
from itertools import takewhile
from typing import Any

from aotlens.analysis.bases import Bases
from aotlens.analysis.records import OutputAliasInfo, OutputType
from aotlens.capture.autograd.graph_walk import autograd_path
from aotlens.capture.invalid_views import grad_fn_of
from aotlens.capture.records import Captured
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.unsupported import unsupported


def check_hooks_on_views(captured: Captured, alias_infos: Sequence[OutputAliasInfo], bases: Bases) -> None:
    """Check hooks on the operators' first arguments, if the wrapper regenerates an output that requires grad.

    Raises:
        UnsupportedError: such an output has a hook, or a view between it and its base does.
    """
    regenerated = [info for info in alias_infos if _is_made_by_wrapper(info) and info.tensor.requires_grad]
    if not regenerated:
        return
    firsts = (call.args[0] for call in captured.calls if call.args)
    hooked = {
        grad_fn_of(argument)
        for argument in firsts
        if type(argument) is FakeTensor and argument._backward_hooks
    } - {None}
    for info in regenerated:
        if info.tensor._backward_hooks or (hooked and _leads_through(info, bases, hooked)):
            raise unsupported("hook-on-view", captured.subject.span)


def _is_made_by_wrapper(info: OutputAliasInfo) -> bool:
    is_view = info.value is None and info.output_type is not OutputType.IS_INPUT
    is_new_leaf = info.is_leaf and info.value is not None
    return info.tensor is not None and (is_new_leaf or is_view)


def _leads_through(info: OutputAliasInfo, bases: Bases, hooked: set[Any]) -> bool:
    """Return True if one of the hooked autograd nodes is between an output and its base."""
    base = info.tensor if info.base is None else bases.tensor(info.base)
    base_grad_fn = grad_fn_of(base)
    path = autograd_path(grad_fn_of(info.tensor))
    return not hooked.isdisjoint(takewhile(lambda node: node is not base_grad_fn, path))
