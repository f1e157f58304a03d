"""What operators run under: modes, kernels, autocast, the random state."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch.utils._python_dispatch import _disable_current_modes

below_views = torch._C._AutoDispatchBelowADInplaceOrView
"""Within it, operators neither record autograd nor mark results as views."""

without_autocast = torch._C._DisableAutocast
"""Within it, operators keep the dtypes that they are given."""


def has_composite_kernel(func: Any) -> bool:
    """Whether an operator is only ever a composition of others."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), key))


def without_modes() -> Any:
    """A context in which no dispatch mode is active."""
    return _disable_current_modes()


@contextmanager
def without_onednn() -> Iterator[None]:
    """Let composite operators choose torch's own CPU kernels; `torch.backends.mkldnn.flags` warns of TF32."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


@contextmanager
def python_dispatcher() -> Iterator[None]:
    """Let operators use their Python kernels, which symbolic sizes need.

    Not dropout's: in evaluation the operator gives its argument back, the Python kernel a copy of it.
    """
    from torch._dispatch.python import enable_python_dispatcher

    dropout = torch.ops.aten.dropout.default
    kernels = dict(dropout.py_kernels)
    dropout.py_kernels.clear()
    dropout._dispatch_cache.clear()
    try:
        with enable_python_dispatcher():
            yield
    finally:
        dropout.py_kernels.update(kernels)
        dropout._dispatch_cache.clear()


@contextmanager
def random_state_handled_by(state: Any) -> Iterator[None]:
    """Within it, this thread's `torch.manual_seed`, `torch.get_rng_state` and their like speak to `state`."""
    owner, real = threading.get_ident(), torch.default_generator

    class OfThisThread:
        def __getattr__(self, name: str) -> Any:
            return getattr(state if threading.get_ident() == owner else real, name)

    module: Any = torch.random
    module.default_generator = OfThisThread()
    try:
        yield
    finally:
        module.default_generator = real
