"""`aotlens.compile`, `aotlens.inspect`, `aotlens.export`: the engine without a command line.

Invariant: a call whose arguments differ in what the compilation assumed (types, sizes, strides, gradients,
which arguments share memory, grad mode, autocast, train or eval of every submodule) is compiled anew.  What
the function reads from elsewhere (plain attributes of a module, globals) is built in: where that changes,
`torch.compile(fn, backend="aotlens")` brings Dynamo's guards.
"""

import functools
import itertools
import platform
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar, overload

import torch

from aotlens.capture.direct import module_tensors
from aotlens.options import CompileOptions
from aotlens.pipeline import Compiled, compile_direct
from aotlens.report.export import refuse_unbound
from aotlens.report.records import Report
from aotlens.torch_api import pytree

Function = TypeVar("Function", bound=Callable[..., Any])


@overload
def compile(fn: Function, *, options: CompileOptions | None = None) -> Function: ...
@overload
def compile(fn: None = None, *, options: CompileOptions | None = None) -> Callable[[Function], Function]: ...
def compile(fn: Any = None, *, options: CompileOptions | None = None) -> Any:
    """Compile a function or module at its first call, and again for arguments of another kind.

    Usable as a decorator, with or without arguments.  The result has the attribute `compiled`: the
    compilations so far, by signature.
    """
    if fn is None:
        return functools.partial(compile, options=options)
    chosen = options or CompileOptions()
    cache: dict[Any, Compiled] = {}

    @functools.wraps(fn.forward if isinstance(fn, torch.nn.Module) else fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        key = signature(fn, args, kwargs, sizes=not chosen.dynamic)
        if chosen.dynamic:
            return _call_fitting(cache, key, lambda: compile_direct(fn, args, kwargs, chosen), (args, kwargs))
        compiled = cache.get(key)
        if compiled is None:
            compiled = cache[key] = compile_direct(fn, args, kwargs, chosen)
        return compiled.call(*args, **kwargs)

    call.compiled = cache  # type: ignore[attr-defined]
    return call


def _call_fitting(
    cache: dict[Any, Compiled], key: Any, make: Callable[[], Compiled], arguments: tuple[Any, Any]
) -> Any:
    """Call the first compilation whose guards on sizes let these arguments in; make one if none does."""
    args, kwargs = arguments
    for number in itertools.count():
        compiled = cache.get((key, number))
        if compiled is None:
            compiled = cache[key, number] = make()
            return compiled.call(*args, **kwargs)
        try:
            return compiled.call(*args, **kwargs)
        except (TypeError, ValueError) as error:
            if not _refused_by_guard(error, compiled):
                raise
    raise AssertionError("a compilation that is just made is called")


def _refused_by_guard(error: Exception, compiled: Compiled) -> bool:
    """Whether the error is the module text's own check of the arguments, before anything ran."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    code = step.tb_frame.f_code if step is not None else None
    return code is not None and code.co_filename == compiled.module.filename and code.co_name == "call"


def signature(fn: Any, args: tuple[Any, ...], kwargs: dict[str, Any], sizes: bool = True) -> Any:
    """What a compilation assumes of its arguments, as a dictionary key; `sizes` may be left to guards."""
    leaves, spec = pytree.tree_flatten((args, kwargs))
    leaves = [*module_tensors(fn).values(), *leaves]
    objects: dict[int, int] = {}
    storages: dict[int, int] = {}
    described: list[tuple[Any, ...]] = []
    for leaf in leaves:
        if not isinstance(leaf, torch.Tensor):
            described.append((type(leaf), leaf if leaf.__hash__ is not None else id(leaf)))
            continue
        described.append(
            (
                leaf.dtype,
                leaf.device,
                _layout(leaf, sizes),
                leaf.requires_grad,
                leaf.is_leaf,
                objects.setdefault(id(leaf), len(objects)),
                storages.setdefault(leaf.untyped_storage()._cdata, len(storages)),
            )
        )
    training = tuple(m.training for m in fn.modules()) if isinstance(fn, torch.nn.Module) else None
    autocast = tuple(
        torch.get_autocast_dtype(kind) if torch.is_autocast_enabled(kind) else None
        for kind in ("cpu", "cuda")
    )
    mode = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), training, autocast)
    return (str(spec), tuple(described), mode)


def _layout(tensor: Any, sizes: bool) -> tuple[Any, ...]:
    if sizes:
        return tuple(tensor.shape), tensor.stride(), tensor.storage_offset()
    strides = tensor.stride()
    order = tuple(sorted(range(len(strides)), key=lambda dim: -strides[dim]))
    return len(strides), order, tensor.is_contiguous()


def inspect(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Report:
    """What ahead-of-time compilation would do to `fn(*args, **kwargs)`; `fn` runs once, on fake tensors."""
    compiled = compile_direct(fn, args, kwargs, _inspection())
    return Report(torch.__version__, platform.python_version(), "aotlens.inspect", (compiled.target(),))


def export(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> str:
    """The text of a module whose `call` does what `fn` does for arguments like these; it needs torch only.

    Raises:
        UnsupportedError: the text would need something that it cannot make by itself.
    """
    compiled = compile_direct(fn, args, kwargs, replace(_inspection(), observe_variables=False))
    refuse_unbound(compiled.name, tuple(compiled.module.text.bound), compiled.captured.subject.span)
    return compiled.source


def _inspection() -> CompileOptions:
    return CompileOptions(backend="eager", observe_variables=True)
