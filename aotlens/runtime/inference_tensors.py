"""Results that the function makes under another inference mode than its caller's.

Invariant: a result is an inference tensor, which autograd lets nobody save or write to, exactly when it is
one in eager.
"""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import torch

from aotlens.analysis.records import IntermediateBaseOf, ViewAndMutationMeta
from aotlens.capture.inference_tensors import made_inside
from aotlens.capture.records import Captured
from aotlens.errors import UnsupportedError
from aotlens.ir.program import Node
from aotlens.ir.subclasses import Wrapped
from aotlens.runtime.builder import TextBuilder

OF_THIS_MODE = """

def of_this_mode(tensor):
    \"\"\"The same memory under a tensor that is made here; `set_` takes no lazy bits.\"\"\"
    if tensor.is_conj():
        return of_this_mode(tensor.conj()).conj()
    if tensor.is_neg():
        return of_this_mode(tensor._neg_view())._neg_view()
    if not hasattr(tensor, "__tensor_flatten__"):
        return torch.empty(0, dtype=tensor.dtype, device=tensor.device).set_(tensor)
    names, context = tensor.__tensor_flatten__()
    inner = {name: of_this_mode(getattr(tensor, name)) for name in names}
    return type(tensor).__tensor_unflatten__(inner, context, tensor.size(), tensor.stride())
"""


def in_mode_of(builder: TextBuilder, captured: Captured, tensor: Any) -> AbstractContextManager[None]:
    """Where the views of a result are taken again."""
    inside = not captured.inference_mode and made_inside(captured.recorder, tensor)
    return builder.block("with torch.inference_mode():") if inside else nullcontext()


def write_inference_tensors(builder: TextBuilder, captured: Captured, meta: ViewAndMutationMeta) -> None:
    """A look at the memory of each by a tensor that is made in that mode; nothing for the usual call."""
    own = [
        (f"out_{info.index}", info.tensor) for info in meta.outputs if isinstance(info.value, (Node, Wrapped))
    ]
    under = {info.base.index for info in meta.outputs if isinstance(info.base, IntermediateBaseOf)}
    own += [(f"base_{at}", meta.bases[at].tensor) for at in sorted(under)]
    turned = [(name, tensor) for name, tensor in own if _is_turned(captured, tensor)]
    if not turned:
        return
    mode = "" if not captured.inference_mode else "False"
    with builder.step("make inference tensors", "the function makes results under another inference mode"):
        with builder.block(f"with torch.inference_mode({mode}):"):
            builder.add(*[f"{name} = of_this_mode({name})" for name, _ in turned])
        for name, tensor in turned:
            if tensor.is_inference() and not made_inside(captured.recorder, tensor):
                builder.add(f"{name} = {name}.detach()  # takes writes, as what was detached outside")


def _is_turned(captured: Captured, tensor: Any) -> bool:
    if not isinstance(tensor, torch.Tensor) or tensor.is_inference() == captured.inference_mode:
        return False
    if tensor.requires_grad and tensor.is_inference():
        raise UnsupportedError(
            "a result that is made under `inference_mode` and requires grad",
            captured.subject.span,
            "make it under `torch.no_grad()`",
        )
    return not tensor.requires_grad
