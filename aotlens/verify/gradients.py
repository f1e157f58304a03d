"""Compute gradients of all outputs of a call, for tangents that are the same in every run."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from aotlens.verify.tensors.prepared_call import Named, PreparedCall
from aotlens.verify.tensors.values import class_name, inner_tensors, is_users_wrapper


@dataclass(frozen=True, slots=True, eq=False)
class Gradients:
    """One gradient per leaf; None for a leaf without a gradient."""

    roots: tuple[str, ...]
    """The outputs and mutated inputs that were differentiated."""
    leaves: tuple[tuple[str, Tensor | None], ...]


def backward(
    prepared: PreparedCall, outputs: Sequence[Named], bumped: Sequence[bool], only: int | None = None
) -> Gradients | None:
    """Differentiate every output and every mutated input that requires grad; None if there is none.

    With `only`, differentiate that root alone.
    """
    roots = list(_roots(prepared, outputs, bumped))
    if only is not None:
        roots = roots[only : only + 1]
    leaves = {id(item.tensor): item for item in (*prepared.leaves, *_leaves_since(prepared))}
    if not roots or not leaves:
        return None
    tangents = [tangent(item.tensor, seed) for seed, item in enumerate(roots)]
    with torch.enable_grad():
        gradients = torch.autograd.grad(
            [item.tensor for item in roots],
            [item.tensor for item in leaves.values()],
            tangents,
            allow_unused=True,
        )
    named = zip((item.name for item in leaves.values()), gradients, strict=True)
    return Gradients(tuple(item.name for item in roots), tuple(named))


def tangent(output: Tensor, seed: int) -> Tensor:
    """Return random numbers in the shape of the output, fixed by the seed."""
    generator = torch.Generator().manual_seed(1000 + seed)
    if is_users_wrapper(output):
        return _wrapper_tangent(output, seed)
    if output.layout != torch.strided or class_name(output) not in ("Tensor", "Parameter"):
        return torch.ones_like(output)
    dtype = torch.complex128 if output.dtype.is_complex else torch.float64
    values = torch.randn(output.shape, generator=generator, dtype=dtype)
    return values.to(device=output.device, dtype=output.dtype)


def _wrapper_tangent(output: Tensor, seed: int) -> Tensor:
    """Return a wrapper of the output's class with random numbers inside."""
    tangents = torch.ones_like(output.detach())
    for index, (_, inner) in enumerate(inner_tensors(tangents)):
        if inner.is_floating_point() and inner.numel():
            inner.copy_(tangent(inner, seed + 100 * index))
    return tangents


def _roots(prepared: PreparedCall, outputs: Sequence[Named], bumped: Sequence[bool]) -> Iterator[Named]:
    yield from (item for item in outputs if _has_grad_fn(item.tensor))
    returned = {id(item.tensor) for item in outputs}
    for item, is_bumped in zip(prepared.inputs, bumped, strict=True):
        if is_bumped and item.tensor.grad_fn is not None and id(item.tensor) not in returned:
            yield item


def _has_grad_fn(tensor: Tensor) -> bool:
    """Return True if autograd can start here: a view made under no_grad requires grad without a grad_fn."""
    if not tensor.requires_grad:
        return False
    base = None if tensor.is_inference() else tensor._base
    return tensor.grad_fn is not None or base is None or not base.requires_grad


def _leaves_since(prepared: PreparedCall) -> Iterator[Named]:
    """Yield inputs that became leaves during the call; the name says so if it belongs to an earlier leaf."""
    known, names = {id(item.tensor) for item in prepared.leaves}, {item.name for item in prepared.leaves}
    for item in prepared.inputs:
        if item.tensor.is_leaf and item.tensor.requires_grad and id(item.tensor) not in known:
            yield Named(f"{item.name}, made a leaf", item.tensor) if item.name in names else item
