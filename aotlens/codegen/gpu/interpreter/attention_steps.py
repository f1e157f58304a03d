"""Attention in steps on the CPU, forward and backward, for what the CPU's fused operator lacks: dropout, and
the gradient of a mask.

Invariant: a dropout mask is a function of the RNG state, so forward and backward agree.
"""

from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from aotlens.capture.operators import aten


@dataclass(frozen=True, slots=True)
class Form:
    """The options of one attention."""

    mask: Tensor | None
    causal: bool
    scale: float | None
    dropout: float = 0.0
    state: int = 0
    """The generator's seed for the dropout mask."""


def forward(query: Tensor, key: Tensor, value: Tensor, form: Form) -> tuple[Tensor, Tensor]:
    """Return the result, and the log-sum-exp of each row."""
    scores = _scores(query, key, form)
    weights = torch.softmax(scores, -1) * _dropout_factor(scores, form)
    result = weights @ _precise(_repeated(value, query))
    return result.to(query.dtype), torch.logsumexp(scores, -1)


def backward(gradient: Tensor, tensors: tuple[Tensor, ...], form: Form) -> tuple[Tensor, ...]:
    """Return the gradients of query, key and value, and of the mask as if it had the size of the scores."""
    query, key, value = tensors
    scores = _scores(query, key, form)
    weights, dropout_factor = torch.softmax(scores, -1), _dropout_factor(scores, form)
    grad_output = _precise(gradient)
    grad_weights = (grad_output @ _precise(_repeated(value, query)).mT) * dropout_factor
    grad_scores = weights * (grad_weights - (grad_weights * weights).sum(-1, keepdim=True))
    scale = _scale(query, form)
    grad_query = grad_scores @ _precise(_repeated(key, query)) * scale
    grad_key = grad_scores.mT @ _precise(query) * scale
    grad_value = (weights * dropout_factor).mT @ grad_output
    gradients = (grad_query, _sum_shared_heads(grad_key, key), _sum_shared_heads(grad_value, value))
    return *(part.to(tensor.dtype) for part, tensor in zip(gradients, tensors, strict=True)), grad_scores


def rng_state_of() -> int:
    """Return a seed for one dropout mask, from the CPU's generator."""
    return int(aten.randint.default(2**31, [1])[0])


def _scores(query: Tensor, key: Tensor, form: Form) -> Tensor:
    scores = _precise(query) @ _precise(_repeated(key, query)).mT * _scale(query, form)
    if form.causal:
        above = torch.ones(scores.shape[-2:], dtype=torch.bool).triu(1)
        scores = scores.masked_fill(above, float("-inf"))
    return scores if form.mask is None else scores + form.mask.to(scores.dtype)


def _precise(tensor: Tensor) -> Tensor:
    """Convert to the type in which sums are computed: at least f32."""
    return tensor.to(torch.promote_types(tensor.dtype, torch.float32))


def _dropout_factor(scores: Tensor, form: Form) -> Any:
    """Return the factor of each weight: 0 where it is dropped."""
    if not form.dropout:
        return 1.0
    generator = torch.Generator().manual_seed(form.state)
    numbers = torch.rand(scores.shape, generator=generator)
    return (numbers >= form.dropout).to(scores.dtype) / (1.0 - form.dropout)


def _scale(query: Tensor, form: Form) -> float:
    return float(query.shape[-1]) ** -0.5 if form.scale is None else form.scale


def _repeated(tensor: Tensor, query: Tensor) -> Tensor:
    """Repeat heads that several of the query's heads share."""
    return tensor.repeat_interleave(query.shape[1] // tensor.shape[1], 1)


def _sum_shared_heads(gradient: Tensor, tensor: Tensor) -> Tensor:
    """Sum the gradient over the query heads that share a head."""
    shared = gradient.shape[1] // tensor.shape[1]
    return gradient.unflatten(1, (-1, shared)).sum(2)
