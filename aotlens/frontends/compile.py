"""`aotlens.compile`, `aotlens.inspect`, `aotlens.export`: the engine without the command line.

Invariant: a call recompiles if it differs in what the compilation assumed: types, sizes, strides, gradients,
which arguments share storage, grad mode, autocast, train or eval of every submodule, or the values of free
variables (attributes, globals, closures).
"""

import functools
import platform
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any, TypeVar, overload

import torch

from aotlens.compiled import Compiled
from aotlens.frontends.call_signature import HeldTensors, argument_signature, signature
from aotlens.frontends.compiled_module import compiled_module
from aotlens.frontends.recompilation import (
    Recompilations,
    free_variables_unchanged,
    held_tensors,
    is_rejection,
)
from aotlens.model.report import Report
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.session.policy_function import with_policy_function
from aotlens.torch_api.modes import is_recording

Function = TypeVar("Function", bound=Callable[..., Any])


@dataclass(frozen=True, slots=True)
class Variant:
    """One compilation, and its assumptions beside the arguments' signature."""

    compiled: Compiled
    free_variables_fit: Callable[[], bool]
    held: HeldTensors

    def fits(self, leaves: list[Any]) -> bool:
        return self.free_variables_fit() and self.held.fit(leaves)


@overload
def compile(fn: Function, *, options: CompileOptions | None = None) -> Function: ...
@overload
def compile(fn: None = None, *, options: CompileOptions | None = None) -> Callable[[Function], Function]: ...
def compile(fn: Any = None, *, options: CompileOptions | None = None) -> Any:
    """Compile a function or module at its first call, and again for other kinds of arguments.

    Usable as a decorator, with or without arguments.  A module becomes a module with the same parameters,
    buffers and names.  The result's attribute `compiled` holds the compilations so far, by signature. After
    many compilations a warning names the argument that differs.  Within a function that is being compiled,
    the call becomes part of that function.
    """
    if fn is None:
        return functools.partial(compile, options=options)
    chosen = with_policy_function(options or CompileOptions())
    cache: dict[Any, Compiled] = {}
    variants_of: dict[Any, list[Variant]] = {}
    recompilations = Recompilations(getattr(fn, "__qualname__", type(fn).__name__))

    @functools.wraps(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        if is_recording():
            return fn(*args, **kwargs)
        leaves, key = argument_signature(args, kwargs, sizes=not chosen.dynamic)
        variants = variants_of.setdefault(key, [])
        for variant in variants:
            if not variant.fits(leaves):
                continue
            if not chosen.dynamic:
                return variant.compiled.call(*args, **kwargs)
            try:
                return variant.compiled.call(*args, **kwargs)
            except (TypeError, ValueError, AssertionError) as error:
                if not is_rejection(error, variant.compiled.module.filename):
                    raise
        compiled = cache[signature(fn, args, kwargs)] = compile_direct(fn, args, kwargs, chosen)
        variants.append(
            Variant(compiled, free_variables_unchanged(compiled), held_tensors(compiled, fn, leaves))
        )
        names = [flat_input.slot.name for flat_input in compiled.captured.flat_inputs]
        recompilations.note(key[1], leaves, names[len(names) - len(leaves) :])
        return compiled.call(*args, **kwargs)

    call.compiled = cache  # type: ignore[attr-defined]
    if isinstance(fn, torch.nn.Module):
        return compiled_module(fn, call, functools.partial(compile, options=options))
    return call


def inspect(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """Report what ahead-of-time compilation does with `fn(*args, **kwargs)`; `fn` runs once, on fake
    tensors."""
    options = CompileOptions(backend="eager", observe_variables=True)  # the report names values by variables
    compiled = compile_direct(fn, args, kwargs, options)
    return Report(torch.__version__, platform.python_version(), "aotlens.inspect", (compiled.target(),))


def export(fn: Callable[..., Any], *args: Any, options: CompileOptions | None = None, **kwargs: Any) -> str:
    """Return the text of a module whose `call` does what `fn` does for arguments like these, without aotlens.

    With the default backend `eager` it depends on torch only; with Inductor also on the compilers of its
    kernels: a C++ compiler, and Triton for a GPU.

    Raises:
        UnsupportedError: the text would depend on an object that it cannot create.
    """
    chosen = with_policy_function(options or CompileOptions(backend="eager"))
    compiled = compile_direct(fn, args, kwargs, replace(chosen, standalone=True, lazy_backward=False))
    return compiled.source
