"""Run autograd on the recording: the backward, the backward of some tangents, and higher derivatives.

Invariants: all of them run in one context, on the tensors of the one recorded run of the user's function.
The gradient of a leaf arrives at one of its edges: `set_` gives a leaf a new one, and what was computed
before still leads to the former.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
from torch.autograd.graph import GradientEdge

from aotlens.capture.autograd.graph_walk import autograd_nodes
from aotlens.capture.error_translation import translated_errors
from aotlens.capture.events import EventKind
from aotlens.capture.provenance.frames import call_boundary
from aotlens.capture.recorder import Recorder
from aotlens.capture.run import recording
from aotlens.joint.records import JointProgram
from aotlens.torch_api.modes import without_autocast
from aotlens.unsupported import unsupported


@contextmanager
def recording_autograd(recorder: Recorder, grad_enabled: bool = True) -> Iterator[None]:
    """Record what runs within, without the user's autocast: it applies to the forward only.

    Grad mode does not depend on the caller's. It is on for a backward, because some of what runs beside
    autograd's engine needs a `grad_fn`; `grad_enabled` is False for saved-tensor hooks, which get none.
    """
    is_dynamic = recorder.fake_mode.shape_env is not None
    grad_mode = torch.enable_grad() if grad_enabled else torch.no_grad()
    with recording(recorder, is_dynamic), translated_errors(recorder), grad_mode, without_autocast():
        yield


@contextmanager
def without_new_guards(joint: JointProgram, case: str) -> Iterator[None]:
    """Check that what runs within specialises no symbolic size: the caller's guards are written already.

    Raises:
        UnsupportedError: it does; `case` is its name.
    """
    environment = joint.captured.fake_mode.shape_env
    before = 0 if environment is None else len(environment.guards)
    yield
    if environment is not None and len(environment.guards) != before:
        raise unsupported(case, joint.captured.subject.span)


def differentiate(
    recorder: Recorder, outputs: Sequence[Any], sources: Sequence[Any], tangents: Sequence[Any]
) -> list[Any]:
    """Return one gradient per source, or None; a source may be None, or an output together with its tangent.

    If a tangent requires grad, the gradients have a `grad_fn`.  It runs under `call_boundary`, so only frames
    inside it are the user's: those of hooks and custom functions.

    Raises:
        UnsupportedError: gradients arrive both at a leaf's edge and at its former one.
    """
    starts = [output for output in outputs if output is not None]
    start_tangents = [tangent for tangent in tangents if tangent is not None]
    ends = [source for source in sources if source is not None]
    gradients = iter(call_boundary(lambda: _gradients_of(recorder, starts, ends, start_tangents)))
    return [None if source is None else next(gradients) for source in sources]


def _gradients_of(
    recorder: Recorder, outputs: list[Any], sources: list[Any], tangents: list[Any]
) -> list[Any]:
    """Return one gradient per source, of a leaf also from a former edge; None for no gradient."""
    if not sources:
        return []
    reset = [event.tensor for event in recorder.events.of(EventKind.NEW_EDGE)]
    former = _former_edges(outputs, sources, reset) if reset else []
    gradients = list(
        torch.autograd.grad(
            outputs,
            [*sources, *(GradientEdge(node, 0) for _, node in former)],
            tangents,
            retain_graph=True,
            create_graph=any(tangent.requires_grad for tangent in tangents),
            allow_unused=True,
        )
    )
    gradients, of_former = gradients[: len(sources)], gradients[len(sources) :]
    with_gradient = {
        id(source) for source, gradient in zip(sources, gradients, strict=True) if gradient is not None
    }
    for leaf in reset:
        if id(leaf) in with_gradient:
            recorder.note(EventKind.GRADIENT_AT_NEW_EDGE, leaf)
    in_callers_graph = _nodes_behind_arguments(sources, gradients) if former else frozenset()
    for (index, node), gradient in zip(former, of_former, strict=True):
        # the caller's graph leads to the leaf as well, with the sizes that it had
        other_sizes = node in in_callers_graph and node._input_metadata[0].shape != sources[index].shape
        if id(sources[index]) in with_gradient and (gradient is not None or other_sizes):
            raise unsupported("set-between-uses-of-leaf", recorder.span)
        if gradient is not None:
            gradients[index] = gradient if gradients[index] is None else gradients[index] + gradient
    return gradients


def _nodes_behind_arguments(sources: list[Any], gradients: list[Any]) -> frozenset[Any]:
    """Return the nodes of the caller's autograd graph behind non-leaf arguments that receive a gradient."""
    pairs = zip(sources, gradients, strict=True)
    ends = [
        source.node for source, gradient in pairs if isinstance(source, GradientEdge) and gradient is not None
    ]
    return frozenset(autograd_nodes(ends))


def _former_edges(outputs: list[Any], sources: list[Any], reset: list[Any]) -> list[tuple[int, Any]]:
    """Return the autograd nodes that collect the gradient of a leaf after `set_`, with the leaf's index."""
    position = {
        id(source): index for index, source in enumerate(sources) if any(source is tensor for tensor in reset)
    }
    former_nodes: dict[int, list[Any]] = {}
    for node in autograd_nodes(output.grad_fn for output in outputs):
        index = position.get(id(getattr(node, "variable", None)))
        if index is not None:
            former_nodes.setdefault(index, []).append(node)
    current = {index: _current_node(sources[index]) for index in former_nodes}
    return [
        (index, node) for index, nodes in former_nodes.items() for node in nodes if node is not current[index]
    ]


def _current_node(leaf: Any) -> Any:
    return leaf.view_as(leaf).grad_fn.next_functions[0][0]
