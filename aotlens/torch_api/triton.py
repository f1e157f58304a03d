"""The user's own Triton kernels."""

import logging
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from typing import Any

import torch
from torch._higher_order_ops.triton_kernel_wrap import get_mutated_tensors, triton_kernel_wrapper_functional

from aotlens.torch_api.patches.compilers import TRITON_TARGET
from aotlens.torch_api.patches.scopes import patched

__all__ = [
    "default_triton_target",
    "launch_kernel_operator",
    "mutated_by_triton_kernel",
    "mute_triton_analysis_log",
    "triton_kernel_wrapper_functional",
    "triton_operators",
    "triton_source",
    "use_bundled_triton_tools",
]


def mutated_by_triton_kernel(launch: dict[str, Any]) -> list[str]:
    """Return the names of the arguments that a `triton_kernel_wrapper_mutation` writes to.

    Torch reads them off the kernel's intermediate code; where it cannot, every tensor counts as written.
    """
    rest = (launch["kwargs"], launch["tma_descriptor_metadata"])
    with default_triton_target():
        return list(get_mutated_tensors(launch["kernel_idx"], launch["constant_args_idx"], *rest))


@contextmanager
def mute_triton_analysis_log() -> Iterator[None]:
    """Within it, torch logs no traceback where Triton rejects a kernel; our report has one sentence."""
    logger = logging.getLogger("torch._dynamo")
    logger.addFilter(_is_no_triton_analysis_error)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_triton_analysis_error)


ANALYSIS_ERRORS = tuple(
    f"Encountered an exception in identify_{kind}_tensors" for kind in ("accessed", "mutated")
)
"""The second in torch 2.11."""


def _is_no_triton_analysis_error(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(ANALYSIS_ERRORS)


def triton_operators() -> dict[Any, Callable[..., Any]]:
    """Return the user's `torch.library.triton_op`s without mutated arguments, each with its function.

    Torch uses that function as the fake kernel too.
    """
    library = sys.modules.get("torch._library.triton")
    if library is None:
        return {}
    from torch._library.custom_ops import OPDEFS

    definitions = {name: OPDEFS[name] for name in library.triton_ops_to_kernels if name in OPDEFS}
    operators = {definition._opoverload: definition._abstract_fn for definition in definitions.values()}
    return {op: function for op, function in operators.items() if not op._schema.is_mutable}


def launch_kernel_operator(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Launch a Triton kernel by the operator that Dynamo writes for it."""
    from torch._library.triton import set_wrap_triton_enabled

    with set_wrap_triton_enabled(True):
        torch.library.wrap_triton(kernel)[grid](*args, **kwargs)


def triton_source(kernel: Any) -> str:
    """Return a kernel's text, with the functions and constants that it uses from its module."""
    from torch._inductor.codegen.wrapper import user_defined_triton_kernel_transitive_closure_source_code

    return str(user_defined_triton_kernel_transitive_closure_source_code(kernel))


def default_triton_target() -> AbstractContextManager[None]:
    """Within it Triton translates kernels for some GPU, where it knows of none."""
    return nullcontext() if find_spec("triton") is None else patched(TRITON_TARGET)


def use_bundled_triton_tools() -> None:
    """Let Triton compile with the assembler and device library that Inductor uses."""
    from torch._inductor import async_compile

    async_compile._set_triton_ptxas_path()
    take_library = getattr(async_compile, "_set_triton_libdevice_path", None)  # from 2.12 on
    if take_library is not None:
        take_library()
