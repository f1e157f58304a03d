"""Give operators of torch other kernels for a while."""

import warnings
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

__all__ = ["overriding_kernels"]


@contextmanager
def overriding_kernels(rows: Iterable[tuple[str, Callable[..., Any], str]]) -> Iterator[None]:
    """Within the context, operators of `aten` have these kernels: name, kernel and dispatch key."""
    kernels = torch.library.Library("aten", "IMPL")
    try:
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", r"(?s).*Overriding a previously registered kernel")
            for name, kernel, key in rows:
                kernels.impl(name, kernel, key)
        yield
    finally:
        kernels._destroy()
