"""`kernel[grid](…)` in a recorded function: the user's Triton kernel, launched by Python itself.

Invariant: a launch that is given a tensor of the recording becomes the operator that Dynamo writes for it;
every other launch is Triton's own.
"""

import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from aotlens.torch_api.fake import FakeTensor
from aotlens.torch_api.operators import pytree
from aotlens.torch_api.triton import launch_kernel_operator

_LAUNCHING = {"triton.runtime.jit": "JITFunction", "triton.runtime.autotuner": "Autotuner"}
"""By module, the class whose `run` a launch calls."""

_recording = threading.local()
"""`depth`: how many recordings of this thread are open."""


@contextmanager
def launches_as_operators() -> Iterator[None]:
    """Within it launches on this thread are recorded; without Triton there is nothing to do."""
    for module, name in _LAUNCHING.items():
        if module in sys.modules:
            _listen(getattr(sys.modules[module], name))
    _recording.depth = getattr(_recording, "depth", 0) + 1
    try:
        yield
    finally:
        _recording.depth -= 1


def _listen(kind: Any) -> None:
    """Have a class of kernels ask for the recording first: once for all threads, since they share it."""
    run: Callable[..., Any] = kind.run
    if hasattr(run, "records_launches"):
        return

    def recorded(kernel: Any, *args: Any, **kwargs: Any) -> Any:
        if not getattr(_recording, "depth", 0) or kwargs.get("warmup") or not _has_fakes((args, kwargs)):
            return run(kernel, *args, **kwargs)
        given = {name: value for name, value in kwargs.items() if name not in ("grid", "warmup")}
        return launch_kernel_operator(kernel, kwargs["grid"], args, given)

    recorded.records_launches = True  # type: ignore[attr-defined]
    kind.run = recorded


def _has_fakes(values: Any) -> bool:
    return any(isinstance(value, FakeTensor) for value in pytree.tree_leaves(values))
