"""Saved bytes, to the byte: what the partition says beside what the autograd node holds after the call."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

import pytest
import torch
from torch import Tensor

from aotlens.compiled import Compiled
from aotlens.errors import AotlensError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.torch_api.saved_tensor_hooks import has_saved_tensor_hooks
from aotlens.verify.tensors.prepared_call import PreparedCall, named_tensors
from aotlens.verify.tensors.retained import new_tensors, retained_tensors
from tests.engine.checking import EagerRun, prepared
from tests.engine.held import held_beyond, owned_by_the_caller, storages

POLICIES = ("min-cut", "default")


def depends_on_data(val: Any) -> bool:
    """Return True if the size of a fake value depends on data."""
    if not isinstance(val, torch.Tensor) or val.layout is not torch.strided:
        return False
    size: Any = val.untyped_storage().nbytes()
    return isinstance(size, torch.SymInt) and size.node.hint is None


def compiled(given: PreparedCall, policy: str, dynamic: bool = False) -> Compiled:
    return compile_direct(
        given.fn, given.args, {}, CompileOptions(backend="eager", policy=policy, dynamic=dynamic)
    )


def held_bytes(found: Compiled, given: PreparedCall) -> int:
    """Bytes of the storages that the node holds beyond the caller's own, after one call."""
    owned = owned_by_the_caller(given.fn, given.args, {})
    old = {id(item.tensor) for item in retained_tensors(given)}
    with torch.set_grad_enabled(torch.is_grad_enabled()):  # whatever mode the call leaves behind
        result = found.call(*given.args)
    result = [result, [item.tensor for item in new_tensors(given, old)]]
    inputs = [item.tensor for item in named_tensors(given.fn, given.args, {})]
    held = held_beyond(found, owned | storages(inputs), result, inputs)
    return sum(held.values())


def as_it_is(tensor: Tensor) -> Tensor:
    return tensor


def keeping_what_hooks_get() -> AbstractContextManager[Any]:
    """Where the caller has hooks on saved tensors, others that keep each as it is."""
    if not has_saved_tensor_hooks():
        return nullcontext()
    return torch.autograd.graph.saved_tensors_hooks(as_it_is, as_it_is)


def judge_saved_bytes(eager: EagerRun) -> None:
    """With both policies where they may differ: in training, but for the grid, which is about the wrapper."""
    program = eager.program
    refused = []
    for dynamic in (False, True) if "dynamic" in program.tags else (False,):
        for policy in POLICIES[:1] if "grid" in program.tags else POLICIES:
            found = held_as_said(eager, policy, dynamic)
            if isinstance(found, str):
                refused.append(found)
            if isinstance(found, str) or found.parts.backward is None:
                break
    if refused:
        pytest.skip(refused[0])


def held_as_said(eager: EagerRun, policy: str, dynamic: bool) -> Compiled | str:
    """What was compiled and judged, or why nothing was."""
    with eager.program.context(), keeping_what_hooks_get():
        _, given = prepared(eager.program)
        try:
            found = compiled(given, policy, dynamic)
            held = held_bytes(found, given)
        except AotlensError as error:
            return f"refused: {error}"
        except Exception as error:
            if eager.first.failure is None:
                raise
            return f"raises as eager does: {error}"
    said = found.parts.saved_bytes
    assert (
        said <= held if any(depends_on_data(value.node.val) for value in found.parts.saved) else said == held
    )
    return found
