"""Patches of Triton's interpreter and of the wrapper's calls, so that Inductor's GPU code runs on a CPU.

Invariant: every replaced name is in this table with its reason, and is replaced only in the interpreter's own
process, for all of its life.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import torch

from aotlens.codegen.gpu.interpreter.casts import converting, converting_float_arguments, multiplying
from aotlens.codegen.gpu.interpreter.faults import assert_in_kernel
from aotlens.codegen.gpu.interpreter.libdevice import bound_functions, calling_functions
from aotlens.codegen.gpu.interpreter.memory import Memory, checking
from aotlens.codegen.gpu.interpreter.random_numbers import RandomNumbers
from aotlens.codegen.gpu.interpreter.reductions import reduce_by_halves, scan_by_doubling
from aotlens.codegen.gpu.interpreter.wrapper import uninitialised
from aotlens.codegen.gpu.offline.emulated_devices import NullContext
from aotlens.torch_api.gpu import interpreting_modules
from aotlens.torch_api.replacements import Replacement

ACCESSES = (
    ("create_masked_load", "reads", 0, 1),
    ("create_masked_store", "writes", 0, 2),
    ("create_atomic_rmw", "updates", 1, 3),
    ("create_atomic_cas", "updates", 0, -1),
)
"""The builder's methods that access memory: the verb for messages, and the positions of pointers and mask."""
RANDOM_FUNCTIONS = (("rand", "rand"), ("randn", "randn"))
"""Triton's random functions, with the kind of number."""
RANDOM_HELPERS = (("rand4x", "rand"), ("randn4x", "randn"), ("randint64", "randint"))
"""Inductor's random functions."""


def replacements(memory: Memory, random_numbers: RandomNumbers) -> tuple[Replacement, ...]:
    """Return every replaced name."""
    return (*_device(), *_numbers(), *_accesses(memory), *_random_functions(random_numbers), *_library())


def apply(rows: tuple[Replacement, ...]) -> None:
    """Apply the patches for the rest of this process's life."""
    for row in rows:
        setattr(row.owner, row.name, row.replacement)


def _device() -> Iterator[Replacement]:
    modules = interpreting_modules()
    yield Replacement(torch.cuda, "_DeviceGuard", NullContext, "the wrapper enters its GPU")
    yield Replacement(torch.cuda, "set_device", lambda device: None, "the wrapper chooses its GPU")
    yield Replacement(
        modules.c, "_cuda_getCurrentRawStream", lambda device: 0, "the wrapper gives each launch a stream"
    )
    yield Replacement(
        modules.guards, "_empty_strided_cuda", uninitialised, "on the CPU, and nothing passes for a result"
    )
    yield Replacement(
        modules.helpers, "set_driver_to_gpu", lambda: None, "the kernels' modules look for a driver"
    )


def _numbers() -> Iterator[Replacement]:
    import triton.language as tl
    from triton.runtime import interpreter

    builder = interpreter.InterpreterBuilder
    convert = converting(interpreter._convert_float)
    dot = multiplying(interpreter.TensorHandle, convert, tl.float32)
    yield Replacement(
        interpreter, "_convert_float", convert, "the original rounds bf16 and fp8 without carry, or cuts off"
    )
    yield Replacement(builder, "create_dot", dot, "the original multiplies the bits of bf16 as integers")
    yield Replacement(
        interpreter.ReduceOps,
        "generic_reduce",
        reduce_by_halves,
        "the original calls the kernel's function once per element",
    )
    yield Replacement(
        interpreter.ScanOps,
        "generic_scan",
        scan_by_doubling,
        "the original calls the kernel's function once per element",
    )
    yield Replacement(
        interpreter,
        "_implicit_cvt",
        converting_float_arguments(interpreter._implicit_cvt, interpreter.TensorHandle, tl),
        "the original leaves a float that a kernel is given as Python's",
    )
    yield Replacement(
        builder,
        "create_assert",
        assert_in_kernel,
        "distinguishes the kernel's assertions from the interpreter's own",
    )
    options = replace(interpreter.interpreter_builder.options, debug=True, sanitize_overflow=False)
    yield Replacement(
        interpreter.interpreter_builder,
        "options",
        options,
        "Inductor compiles with assertions, and integers may overflow as in eager",
    )


def _accesses(memory: Memory) -> Iterator[Replacement]:
    from triton.runtime.interpreter import InterpreterBuilder

    for name, verb, pointer, mask in ACCESSES:
        yield Replacement(
            InterpreterBuilder,
            name,
            checking(memory, verb, getattr(InterpreterBuilder, name), pointer, mask),
            "the original trusts addresses, and reads a broadcast mask as raw memory",
        )


def _random_functions(random_numbers: RandomNumbers) -> Iterator[Replacement]:
    import triton.language as tl

    reason = "random numbers are compared between forward and backward, and with their law"
    helpers = interpreting_modules().helpers
    for owner, names in ((tl, RANDOM_FUNCTIONS), (helpers, RANDOM_HELPERS)):
        for name, kind in names:
            if not hasattr(owner, name):  # torch 2.11 and 2.12 have none of the helpers
                continue
            yield Replacement(owner, name, random_numbers.recording(kind, getattr(owner, name)), reason)


def _library() -> Iterator[Replacement]:
    from triton.language.extra import libdevice as stub
    from triton.language.extra.cuda import libdevice as target
    from triton.runtime import interpreter

    call: Any = calling_functions(interpreter.TensorHandle, interpreter._get_np_dtype)
    yield Replacement(
        interpreter.InterpreterBuilder,
        "create_extern_elementwise",
        call,
        "the original knows no function of the device library",
    )
    for name, function in bound_functions(stub, target, interpreter.interpreter_semantic):
        yield Replacement(stub, name, function, "the stub has no body; the compiler replaces it too")
