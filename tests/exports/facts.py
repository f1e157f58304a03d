"""What a caller can see of one call, told with torch alone: values, gradients, memory, history, random state.

Promise: equal facts mean that no later code could tell an exported module's call from eager's.
"""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

Facts = dict[str, Any]


def facts(call: Callable[..., Any], fn: Any, args: Sequence[Any], seed: int = 1) -> Facts:
    """Calls `call` on the arguments; `fn` is the user's callable, whose tensors a call may change."""
    owned = [*fn.parameters(), *fn.buffers()] if isinstance(fn, nn.Module) else []
    inputs = [*owned, *tensors(args)]
    hidden = [leaf for tensor in inputs for leaf in _leaves_behind(tensor)]
    versions = [_version(tensor) for tensor in inputs]
    torch.manual_seed(seed)
    mode = torch.is_grad_enabled()
    try:
        result = call(*args)
    except Exception as error:  # noqa: BLE001 - what eager raises, the module must raise too
        return {"error": type(error).__name__, "message": str(error).splitlines()[:1]}
    left_behind = torch.is_grad_enabled()
    torch.set_grad_enabled(mode)
    outputs = tensors(result)
    everything = [*inputs, *outputs]
    seen: Facts = {
        "structure": str(pytree.tree_structure(result)),
        "numbers": [leaf for leaf in pytree.tree_leaves(result) if _is_plain(leaf)],
        "grad mode": left_behind,
        "random state": torch.get_rng_state(),
        "written": [_version(tensor) != old for tensor, old in zip(inputs, versions, strict=True)],
        "memory": [_first(tensor, everything) for tensor in everything],
        "same": [next(at for at, other in enumerate(everything) if other is one) for one in everything],
        "bases": [_base(tensor, inputs) for tensor in everything],
        "history": [_history(tensor) for tensor in everything],
        "values": [_value(plain) for tensor in everything for plain in inside(tensor)],
        "layout": [_layout(plain) for tensor in everything for plain in inside(tensor)],
    }
    seen |= _gradients([*inputs, *hidden], outputs)
    seen["inputs after the backward"] = [_value(plain) for one in inputs for plain in inside(one)]
    return seen


def tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


def inside(tensor: Any) -> list[Any]:
    """The plain tensors inside a wrapper subclass; the tensor itself when it is none."""
    if not hasattr(tensor, "__tensor_flatten__"):
        return [tensor]
    names, _ = tensor.__tensor_flatten__()
    parts = (getattr(tensor, name) for name in names)
    return [plain for part in parts if isinstance(part, Tensor) for plain in inside(part)]


def _is_plain(leaf: Any) -> bool:
    return leaf is None or isinstance(leaf, (int, float, complex, str, torch.dtype, torch.device))


def _version(tensor: Tensor) -> int:
    return 0 if tensor.is_inference() else tensor._version


def _first(tensor: Tensor, everything: list[Tensor]) -> int:
    """The first tensor that lies on the same storage."""
    storages = _storages(tensor)
    return next((at for at, other in enumerate(everything) if storages & _storages(other)), -1)


def _storages(tensor: Tensor) -> set[int]:
    plain = [one for one in inside(tensor) if one.layout == torch.strided]
    return {one.untyped_storage()._cdata for one in plain}


def _base(tensor: Tensor, inputs: list[Tensor]) -> int | None:
    base = None if tensor.is_inference() else tensor._base
    if base is None:
        return None
    return next((at for at, one in enumerate(inputs) if one is base or one._base is base), None)


def _history(tensor: Tensor) -> tuple[str, bool, bool]:
    try:
        leaf = tensor.is_leaf
    except RuntimeError:  # a view whose place in the tape autograd refuses to tell
        leaf = False
    return type(tensor).__name__, tensor.requires_grad, leaf


def _value(tensor: Tensor) -> Tensor:
    with torch.no_grad():
        return tensor.detach().clone()


def _layout(tensor: Tensor) -> Any:
    if tensor.layout != torch.strided:
        return tensor.shape
    return tensor.dtype, tensor.shape, tensor.stride(), tensor.storage_offset()


def _leaves_behind(tensor: Tensor) -> list[Tensor]:
    """The leaves that a non-leaf argument was computed from."""
    found: list[Tensor] = []
    waiting: list[Any] = [tensor.grad_fn]
    while waiting:
        node = waiting.pop()
        if hasattr(node, "variable"):
            found.append(node.variable)
        waiting += [before for before, _ in getattr(node, "next_functions", ()) if before is not None]
    return found


def _has_history(tensor: Tensor) -> bool:
    try:
        return tensor.grad_fn is not None
    except RuntimeError:  # a view of which autograd refuses to tell
        return False


def _gradients(inputs: list[Tensor], outputs: list[Tensor]) -> Facts:
    """For tangents that are the same in every run."""
    roots = [tensor for tensor in outputs if _has_history(tensor)]
    leaves = [tensor for tensor in inputs if tensor.requires_grad and _history(tensor)[2]]
    leaves = list({id(tensor): tensor for tensor in leaves}.values())
    if not roots or not leaves:
        return {}
    with torch.random.fork_rng():
        torch.manual_seed(7)
        tangents = [_tangent(root) for root in roots]
    try:
        with torch.enable_grad():
            found = torch.autograd.grad(roots, leaves, tangents, allow_unused=True)
    except Exception as error:  # noqa: BLE001 - what eager raises, the module must raise too
        return {"backward error": type(error).__name__}
    flat = [plain for gradient in found for plain in inside(gradient)]
    return {
        "gradients": [None if one is None else _value(one) for one in flat],
        "gradient layout": [None if one is None else one.dtype for one in flat],
    }


def _tangent(root: Tensor) -> Tensor:
    if type(root) not in (Tensor, nn.Parameter) or root.layout != torch.strided:
        return torch.ones_like(root)
    return torch.randn(root.shape, dtype=torch.float64).to(root.dtype)


WITH_TENSORS = ("values", "gradients", "numbers", "random state", "inputs after the backward")


TOLERATED = {
    "bases": "view",
    "written": "version",
    "gradients": "gradient",
    "random state": "random state",
}
"""Facts by the name that a program's row has for a difference in them."""


def difference(
    found: Facts, expected: Facts, tolerance: float = 1e-4, tolerated: frozenset[str] = frozenset()
) -> str | None:
    """The first thing that differs; None when nothing does."""
    if "error" in expected or "error" in found:
        same = found.get("error") == expected.get("error")
        wanted = expected.get("message", "no error")
        return None if same else f"raised {found.get('message')}, eager raised {wanted}"
    for name in [*expected, *(name for name in found if name not in expected)]:
        one, other = found.get(name), expected.get(name)
        if TOLERATED.get(name) in tolerated:
            continue
        try:
            if name not in WITH_TENSORS:
                assert one == other, f"{one}, eager: {other}"
            else:
                torch.testing.assert_close(one, other, rtol=tolerance, atol=tolerance / 10, equal_nan=True)
        except (AssertionError, TypeError) as error:
            return f"{name}: {' '.join(str(error).split())[:300]}"
    return None
