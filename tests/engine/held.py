"""What the autograd node of a compiled call really holds: found by walking it, for the tests of predictions.

Promise: every storage is counted once, whole, by its own size; what the caller holds by itself (arguments,
parameters, buffers, results, tensors in closures) and what the loaded module carries is not counted.
"""

import types
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from aotlens.capture.invalid_views import raises_on_grad_fn
from aotlens.compiled import Compiled
from aotlens.verify.tensors.prepared_call import named_leaves, named_tensors
from tests.exports.facts import inside

Storages = dict[int, int]
"""Bytes by the identity of the storage."""


def storages(tensors: Any) -> Storages:
    """The storages under tensors, those inside wrappers too."""
    plain = [part for tensor in tensors for part in inside(tensor)]
    found = [
        part.untyped_storage() for part in plain if isinstance(part, Tensor) and part.layout is torch.strided
    ]
    return {storage._cdata: storage.nbytes() for storage in found}


def owned_by_the_caller(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Storages:
    tensors = [item.tensor for item in named_tensors(fn, args, kwargs)]
    return storages([*tensors, *(tensor._base for tensor in tensors if tensor._base is not None)])


def held_beyond(compiled: Compiled, owned: Storages, result: Any, changed: list[Tensor]) -> Storages:
    """The storages that the compiled call's node holds and neither the caller nor the module does.

    `owned` are the caller's; `changed` are tensors, beside the result, through which the node is found.
    """
    results = [item.tensor for item in named_leaves("result", result)]
    constants = [node.constant for program in programs(compiled) for node in program.constants()]
    kept = storages(tensor for tensor in constants if isinstance(tensor, Tensor))
    held: Storages = {}
    for node in nodes_of([*results, *changed]):
        if type(node).__name__ == "CompiledFunctionBackward":
            held |= storages(reached([node.saved_tensors, vars(node)]))
    return {key: size for key, size in held.items() if key not in {**owned, **storages(results), **kept}}


def programs(compiled: Compiled) -> Iterator[Any]:
    yield compiled.parts.forward
    if compiled.parts.backward is not None:
        yield compiled.parts.backward


def nodes_of(roots: list[Tensor]) -> Iterator[Any]:
    """Autograd's nodes behind some tensors, each once."""
    waiting = [root.grad_fn for root in roots if not raises_on_grad_fn(root) and root.grad_fn is not None]
    seen: set[int] = set()
    keep = []
    while waiting:
        node = waiting.pop()
        if id(node) in seen:
            continue
        seen.add(id(node))
        keep.append(node)  # while its identity is remembered
        yield node
        waiting += [following for following, _ in node.next_functions if following is not None]


def reached(value: Any, depth: int = 4) -> Iterator[Tensor]:
    """Tensors inside nested containers and objects."""
    if isinstance(value, Tensor):
        yield value
    elif depth and isinstance(value, Mapping):
        for item in value.values():
            yield from reached(item, depth - 1)
    elif depth and isinstance(value, (list, tuple, set)):
        for item in value:
            yield from reached(item, depth - 1)
    elif depth and hasattr(value, "__dict__") and not isinstance(value, (type, types.FunctionType)):
        yield from reached(vars(value), depth - 1)
