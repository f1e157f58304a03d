"""`functorch.compile`'s entry points on our pipeline: a program runs after changing its import.

Invariant: code compiled for one kind of call never runs for another.  A call that the module text rejects is
recompiled, unless the error is the call's own or `debug_assert` asks for the rejection.
"""

import functools
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.capture.inputs.constant_arguments import is_compared_by_attributes, is_value
from aotlens.clock import COMPILING
from aotlens.compiled import Compiled
from aotlens.frontends.call_signature import autocast_dtypes, signature
from aotlens.frontends.recompilation import CallCheck, call_check
from aotlens.options import Backend, CompileOptions, Compilers, PartitionFunction, SideEffects
from aotlens.partition.graph_modules import default_partition, min_cut_rematerialization_partition
from aotlens.pipeline import compile_direct
from aotlens.runtime.module_call import ModuleSlot, absent_slots
from aotlens.torch_api.aot import debug_assert
from aotlens.torch_api.modes import (
    count_dispatch_modes,
    count_function_modes,
    is_any_autocast_enabled,
    is_recording,
    user_function_mode_types,
)
from aotlens.unsupported import unsupported

__all__ = ["POSITIONAL", "Decompositions", "Entries", "aot_function", "compile_options", "compiled_function"]

Decompositions = dict[Any, Callable[..., Any]]

CALL_REJECTIONS = (AssertionError, RuntimeError, TypeError, ValueError)
"""The exceptions that guards of a module text raise."""

CHECKED_TYPES = (
    *(int, float, str, torch.dtype, torch.device, set, frozenset, torch.nn.Module),
    *(torch.SymInt, torch.SymFloat, torch.SymBool),
)
"""Types of arguments, beside tensors and values, that are checked at each call."""

ASSUMPTION = "At compilation time"
"""How the errors start that `debug_assert` asks for."""

CHANGED_FREE_VARIABLES = "compiled for other surroundings"
"""For a call in which free variables have other values."""

POLICIES: dict[Any, str] = {default_partition: "default", min_cut_rematerialization_partition: "min-cut"}
"""Our own partition functions, which need no graph module of the joint program."""


def compile_options(  # noqa: PLR0913 (functorch's arguments)
    fw_compiler: Backend,
    bw_compiler: Backend | None = None,
    inference_compiler: Backend | None = None,
    partition_fn: PartitionFunction = default_partition,
    decompositions: Decompositions | None = None,
    keep_inference_input_mutations: bool = False,
    dynamic: bool = False,
    **_: Any,
) -> CompileOptions:
    """Return the options for an entry point's arguments by name; those without effect here are dropped."""
    return CompileOptions(
        backend=Compilers(fw_compiler, bw_compiler or fw_compiler, inference_compiler or fw_compiler),
        dynamic=dynamic,
        policy=POLICIES.get(partition_fn, partition_fn),
        keep_input_mutations=keep_inference_input_mutations,
        decompositions=decompositions or {},
        side_effects=SideEffects.FOR_ONE_CALL,
    )


@dataclass(frozen=True, slots=True)
class Latest:
    """The compilation that is tried first.  One immutable value, since other threads may replace it."""

    call: Callable[..., Any]
    """When it raises one of `CALL_REJECTIONS`, `Entries.recompile` continues."""
    key: Any = None
    modes: Any = None
    """The autocast and function modes of the compilation, which are not visible in the arguments."""
    absent: tuple[ModuleSlot, ...] = ()
    """Parameters and buffers of the module that were None."""
    free_variables_fit: CallCheck | None = None
    """Checks that free variables are unchanged; None where there are none."""

    is_plain: bool = False
    """Whether a call outside of every mode has only its arguments to check."""

    def fits(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> bool:
        return self.free_variables_fit is None or self.free_variables_fit(args, kwargs)


class Entries:
    """The compilations of one function: the latest is tried first, without a look at the arguments."""

    def __init__(self, fn: Callable[..., Any], options: CompileOptions) -> None:
        self._fn = fn
        self._options = options
        self._latest = Latest(_not_compiled)
        self._has_warned = False
        self.compiled: dict[Any, Compiled] = {}
        self._known: dict[Any, Latest] = {}
        """For each compilation, what is needed to try it first."""

    def recompile(self, error: Exception, tried: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Find or compile an entry for arguments that the compilation under `tried` rejected; raise an error
        of the call itself."""
        with COMPILING:  # so that no other thread's recording is in the module
            key = signature(self._fn, args, kwargs)
        if key == tried or (ASSUMPTION in str(error) and debug_assert()):
            raise error
        if self._options.dynamic and key not in self.compiled:
            absent = absent_slots(self._fn)
            for known, other in tuple(self._known.items()):
                other_modes = isinstance(known, tuple) and known[-1] != key[-1]
                if other_modes or other.absent != absent or not other.fits(args, kwargs):
                    continue
                try:
                    return other.call(*args, **kwargs)
                except CALL_REJECTIONS as rejection:
                    if not _is_guard_error(rejection):
                        raise
        with COMPILING:  # so that a second thread finds the first one's compilation
            if key not in self.compiled or not self._known[key].fits(args, kwargs):
                self.compile(args, kwargs, key)
                self._known[key].fits(args, kwargs)  # a compilation for one call is used up by this one
            latest = self._latest = self._known[key]
        return latest.call(*args, **kwargs)

    def function(self) -> Callable[..., Any]:
        """Return the function that the user calls."""

        def call(*args: Any, **kwargs: Any) -> Any:
            latest = self._latest
            if (
                not latest.is_plain
                or count_dispatch_modes()
                or count_function_modes()
                or is_any_autocast_enabled()
            ):
                if is_recording():
                    return self._fn(*args, **kwargs)
                mismatch = self._mismatch(latest, args, kwargs)
                if mismatch:
                    tried = None if mismatch == CHANGED_FREE_VARIABLES else latest.key
                    return self.recompile(RuntimeError(mismatch), tried, args, kwargs)
            rejection: Exception
            try:
                return latest.call(*args, **kwargs)
            except CALL_REJECTIONS as error:
                rejection = error
            except AttributeError as error:
                if absent_slots(self._fn) == latest.absent:
                    raise
                rejection = error  # a parameter or buffer has become None
            return self.recompile(rejection, latest.key, args, kwargs)

        if not isinstance(self._fn, torch.nn.Module):
            functools.update_wrapper(call, self._fn)
        call.compiled = self.compiled  # type: ignore[attr-defined]
        return call

    def _mismatch(self, latest: Latest, args: tuple[Any, ...], kwargs: dict[str, Any]) -> str:
        """Return the assumption beside the arguments that this call violates; empty if none."""
        if any(store.get(key) is not None for store, key in latest.absent):
            return "compiled for a parameter or buffer that was None"
        if not latest.fits(args, kwargs):
            return CHANGED_FREE_VARIABLES
        return "" if _modes() == latest.modes else "not compiled for calls under these modes"

    def compile(self, args: tuple[Any, ...], kwargs: dict[str, Any], key: Any = None) -> Compiled:
        """Compile for these arguments, real or fake, and make it the latest entry."""
        call_key = key if key is not None else signature(self._fn, args, kwargs)
        self._warn_recompiling(self.compiled.get(call_key))
        compiled = compile_direct(self._fn, args, kwargs, self._options)
        _reject_objects(compiled)
        fits = call_check(compiled, args, kwargs)
        modes, absent = _modes(), absent_slots(self._fn)
        is_plain = modes == WITHOUT_MODES and not absent and fits is None
        self._latest = Latest(compiled.call, call_key, modes, absent, fits, is_plain)
        self._known[call_key] = self._latest
        self.compiled[call_key] = compiled
        return compiled

    def _warn_recompiling(self, before: Compiled | None) -> None:
        """Warn once if every call recompiles."""
        changed = before.captured.single_use_reason if before is not None else ""
        if before is not None and changed and not self._has_warned:
            self._has_warned = True
            warnings.warn(
                f"`{before.captured.subject.name}` is recompiled at each call: it changes {changed}, which"
                " it may read; store it in a tensor, or change it outside",
                stacklevel=5,
            )


def _reject_objects(compiled: Compiled) -> None:
    """Reject arguments whose state is not checked at each call.

    Raises:
        AssertionError: with the words that programs look for.
    """
    for flat_input in compiled.captured.flat_inputs:
        value = flat_input.argument
        if flat_input.is_tensor or flat_input.node is not None or isinstance(value, CHECKED_TYPES):
            continue
        if not is_value(value) and not is_compared_by_attributes(value):
            raise unsupported(
                "argument-class",
                compiled.captured.subject.span,
                type=type(value).__qualname__,
                input=flat_input.slot.name,
            )


WITHOUT_MODES = (False, ())
"""The result of `_modes` in most calls."""


def _modes() -> Any:
    return is_any_autocast_enabled() and autocast_dtypes(), user_function_mode_types()


def _is_guard_error(error: Exception) -> bool:
    return str(error).startswith("compiled `") or ASSUMPTION in str(error)


def _not_compiled(*args: Any, **kwargs: Any) -> Any:
    raise RuntimeError("not compiled yet")


def aot_function(  # noqa: PLR0913 (functorch's signature)
    fn: Callable[..., Any],
    fw_compiler: Backend,
    bw_compiler: Backend | None = None,
    partition_fn: PartitionFunction = default_partition,
    decompositions: Decompositions | None = None,
    num_params_buffers: int = 0,
    keep_inference_input_mutations: bool = False,
    inference_compiler: Backend | None = None,
    *,
    dynamic: bool = False,
    enable_log: bool = True,
    disable_functionalization: bool = False,
    _disable_torch_fn_metadata_mode: bool = False,
) -> Callable[..., Any]:
    """Trace and compile `fn` at its first call: forward, backward and inference each with its compiler.

    `num_params_buffers`, `enable_log` and the arguments after it have no effect: parameters are recognised by
    their type, and each call is checked.
    """
    options = compile_options(**locals())
    return functools.wraps(fn)(Entries(fn, options).function())


POSITIONAL = (
    "fw_compiler",
    "bw_compiler",
    "partition_fn",
    "decompositions",
    "num_params_buffers",
    "keep_inference_input_mutations",
    "inference_compiler",
)
"""The positional arguments of `aot_function` after the function."""


compiled_function = aot_function
