"""Explain errors about a resource that is not available: a GPU, or the value of a fake tensor.

Derived from torch's own errors, so that the user reads one sentence with a solution.
"""

import re
import sys
from collections.abc import Iterator
from typing import Any

__all__ = ["EMULATED_GPU", "missing_gpu_reason", "missing_value_reason", "without_fake_option"]

NO_GPU = (
    "Torch not compiled with CUDA enabled",
    "Found no NVIDIA driver",
    "No CUDA GPUs are available",
    "Cannot re-initialize CUDA in forked subprocess",  # a CUDA build whose GPUs a parent has counted
    "with arguments from the 'CUDA' backend",
    "PyTorch is not linked with support for cuda devices",
    "Cannot initialize CUDA without ATen_cuda library",
    "type torch.cuda.FloatTensor not available",
    "object on a CUDA device but torch.cuda.is_available() is False",
)
"""Torch's messages for a device that is not available."""

EMULATED_GPU = "aotlens_gpu"
"""Set on an error that left a script for which a GPU was emulated: the GPU's name."""

READ_BY_OPERATORS = {
    "aten._local_scalar_dense.default": "a number from a tensor (`.item()`, `float()`, `if`, a format)",
    "aten.equal.default": "whether two tensors are equal",
    "aten.allclose.default": "whether two tensors are close",
    "aten.is_nonzero.default": "whether a tensor is true",
}
"""Operators whose output depends on values, with what the script wanted to read."""

READ_BY_MESSAGES = {
    ".numpy() is not supported": "an array of a tensor's values (`.numpy()`)",
    "format string passed to FakeTensor": READ_BY_OPERATORS["aten._local_scalar_dense.default"],
    "Can't pickle local object 'WeakValueDictionary": "a tensor's memory, to save it",
    "data is not allocated yet": "a tensor's memory",
    "Cannot access data pointer of Tensor": "a tensor's memory",
}
"""Torch's messages for reading a fake tensor's memory, with what the script wanted to read."""


def missing_gpu_reason(error: BaseException, script: str) -> str:
    """Return why the line needs a GPU, as the rest of a sentence that begins with the location; empty for
    other errors.
    """
    torch: Any = sys.modules.get("torch")
    if torch is None or torch.cuda.is_available():
        return ""
    if not any(words in str(cause) for cause in _causes_and_contexts(error) for words in NO_GPU):
        return ""
    emulated_gpu = next(
        (gpu for cause in _causes_and_contexts(error) if (gpu := getattr(cause, EMULATED_GPU, None))), None
    )
    if emulated_gpu is not None:
        message = str(error).strip().partition("\n")[0].partition(". This could be")[0]
        return (
            f"needs more of a GPU than `--gpu {emulated_gpu}` can emulate: {type(error).__name__}: {message}"
        )
    return (
        "asks for a GPU, and there is none here; `--gpu NAME` (h100, a100, …) goes on as if that one were"
        f" there: aotlens inspect {script} --gpu h100"
    )


def missing_value_reason(error: BaseException) -> str:
    """Return why fake tensors cannot run the line, as the rest of a sentence; empty for other errors.

    The sentence begins with the location. torch raises a type of its own where it knows that an output
    depends on values, and only messages where Python or a kernel reads a fake tensor's memory.
    """
    for cause in _causes_and_contexts(error):
        name = type(cause).__name__
        if name in ("DataDependentOutputException", "DynamicOutputShapeException"):
            op = str(cause.args[0]) if cause.args else "an operator"
            sizes = f"the sizes that `{op}` gives, which depend on data"
            if name.startswith("Dynamic"):
                return f"needs {sizes}, and {_FAKE_HAS_NO_VALUES}"
            return _needs_value(READ_BY_OPERATORS.get(op, f"the output of `{op}`, which depends on values"))
        if (match := _NO_KERNEL.search(str(cause))) is not None:
            return f"runs `{match[1]}`, which torch does not support on fake tensors; leave --fake out"
        for words, what in READ_BY_MESSAGES.items():
            if words in str(cause):
                return _needs_value(what)
    return ""


def without_fake_option(message: str) -> str:
    """Return the message for a command whose tensors are fake unless `--real` is set."""
    message = message.replace("aotlens inspect", "aotlens fit")
    return message.replace("under --fake tensors", "fake tensors").replace("leave --fake out", "add --real")


_FAKE_HAS_NO_VALUES = "under --fake tensors have no values; leave --fake out"
_NO_KERNEL = re.compile(r"Could not run '([\w:.]+)' with arguments from the '\w*Meta' backend")
"""Torch's message for an operator that cannot run on fake tensors."""


def _needs_value(what: str) -> str:
    return f"needs {what}, and {_FAKE_HAS_NO_VALUES}, or guard the line (print `loss.shape`, not the loss)"


def _causes_and_contexts(error: BaseException) -> Iterator[BaseException]:
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        current = current.__cause__ or current.__context__
