"""Run autograd on the recording: the backward, the backward of some tangents, and higher derivatives.

Invariant: all of them run in one context, on the tensors of the one recorded run of the user's function.
"""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from aotlens.capture.error_translation import translated_errors
from aotlens.capture.recorder import Recorder
from aotlens.capture.run import call_boundary, recording
from aotlens.capture.storage import Storage
from aotlens.ir.names import node_name
from aotlens.ir.origin import NO_ORIGIN, Origin
from aotlens.ir.program import Node
from aotlens.joint.leaves import gradients_of
from aotlens.joint.records import JointProgram
from aotlens.torch_api.modes import without_autocast
from aotlens.unsupported import unsupported

aten = torch.ops.aten


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
    """Return one gradient per source, or None; None among outputs, tangents and sources is skipped.

    It runs under `call_boundary`, so only frames inside it are the user's: those of hooks and custom
    functions.
    """
    starts = [output for output in outputs if output is not None]
    start_tangents = [tangent for tangent in tangents if tangent is not None]
    leaves = [source for source in sources if source is not None]
    gradients = iter(call_boundary(lambda: gradients_of(starts, leaves, start_tangents, recorder)))
    return [None if source is None else next(gradients) for source in sources]


def new_alias(recorder: Recorder, node: Node) -> Any:
    """Return a new fake tensor that the recording tracks as the node's value, on a storage of its own."""
    alias = node.val.detach()
    recorder.track(alias, Storage(node, alias))
    return alias


def new_tangent(recorder: Recorder, like: Any, name: str, reason: str) -> tuple[Node, Any]:
    """Return a tangent's node and fake tensor, in the layout of `like`, contiguous if that has gaps or
    overlaps."""
    kind = {"dtype": like.dtype, "device": like.device}
    if aten.is_non_overlapping_and_dense.default(like):
        tensor = torch.empty_strided(like.shape, like.stride(), **kind)
    else:
        tensor = torch.empty(like.shape, **kind)
    origin = Origin(NO_ORIGIN, "", backward=True, stage="joint", reason=reason)
    node = Node(recorder.name(node_name(name)), None, (), {}, tensor, origin)
    return node, new_alias(recorder, node)
