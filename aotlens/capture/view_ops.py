"""Record calls of view operators."""

from dataclasses import replace
from typing import Any

import torch

from aotlens.capture.as_strided import check_within_input, with_storage_offset
from aotlens.capture.graph import TRACKED_ATTRIBUTE, Recording
from aotlens.capture.operators import HIDDEN_SPLITS, aten
from aotlens.capture.storage import Tracked
from aotlens.capture.views import ViewStep, apply_view
from aotlens.ir.symbols import is_data_dependent
from aotlens.torch_api.operators import check_at_run_time
from aotlens.unsupported import unsupported

WITH_STRIDES = (torch.strided, torch.jagged, torch.sparse_coo)


def record_view(
    recording: Recording, func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], *, rewritten: bool
) -> Any:
    """Record one call of an operator whose results are views of its first argument; return the views.

    `rewritten` tells whether the caller's decompositions contain the operator.
    """
    func, source = HIDDEN_SPLITS.get(func, func), args[0]
    if source.layout not in WITH_STRIDES:
        raise unsupported("view-of-sparse", recording.span, operator=func, layout=source.layout)
    if func is aten.select.int and not recording.is_subgraph:
        _check_index(source, *args[1:])
    tracked = recording.tracked(source)
    source_node = recording.node_to_view(source)
    result = apply_view(func, args, kwargs)
    several = isinstance(result, (list, tuple))
    step = ViewStep.in_current_modes(func, args[1:], kwargs)
    node: Any = None
    if func is aten.as_strided.default:
        step = with_storage_offset(step, source, tracked, recording.span)
        check_within_input(tracked.storage, step, result, recording.span)
    if tracked.storage.version and step.offset is not None:
        node = recording.replay(tracked.storage, (*tracked.chain, step))
    elif not rewritten and source_node.val.stride() == source.stride():
        node = recording.add_node(
            func, (source_node, *recording.argument(args[1:])), recording.keywords(kwargs), result
        )
    else:
        node = recording.emit(func, source_node, *args[1:], **kwargs)
    for index, view in enumerate(result if several else (result,)):
        view_step = replace(step, result=index) if several else step
        chain = (*tracked.chain, view_step)
        view_node = recording.item(node, index) if several else node
        setattr(view, TRACKED_ATTRIBUTE, Tracked(tracked.storage, chain, view_node, tracked.storage.version))
    return result


def _check_index(source: Any, dim: int, index: Any) -> None:
    """Add a run-time check of a data-dependent index, since a backend would read out of bounds."""
    if is_data_dependent(index):
        check_at_run_time(index < source.shape[dim])
        check_at_run_time(index >= -source.shape[dim])
