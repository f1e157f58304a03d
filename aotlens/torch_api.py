"""Every private name of torch that aotlens uses, imported here and nowhere else.

Invariant: a new torch release is this one file's work, and so it is longer than the others.  Each name says
what for; where releases differ, the code asks what is there.  scripts/torch_versions.py tries all of them.
A comment heads each subject.
"""

import contextvars
import dataclasses
import inspect
import json
import logging
import os
import random
import re
import sys
import threading
import traceback
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager, nullcontext
from functools import cache, partial
from importlib.util import find_spec
from inspect import signature
from itertools import islice, pairwise
from keyword import iskeyword
from types import CodeType, FrameType, SimpleNamespace
from typing import Any, Literal, NamedTuple, Protocol

import torch
import torch.utils._pytree as pytree
from torch._C._dynamo import eval_frame
from torch._guards import CompileContext, TracingContext, detect_fake_mode, tracing
from torch._higher_order_ops.auto_functionalize import (
    auto_functionalized,
    auto_functionalized_v2,
    can_auto_functionalize,
)
from torch._higher_order_ops.effects import _get_effect, with_effects
from torch._higher_order_ops.torchbind import call_torchbind
from torch._higher_order_ops.triton_kernel_wrap import (
    get_mutated_tensors,
    triton_kernel_wrapper_functional,
)
from torch._library.fake_class_registry import FakeScriptObject, has_fake_class, maybe_to_fake_obj
from torch._ops import OpOverload, OpOverloadPacket, TorchBindOpOverload
from torch._prims_common import is_contiguous_for_memory_format_or_false, suggest_memory_format
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensor,
    FakeTensorMode,
    UnsupportedOperatorException,
    unset_fake_temporarily,
)
from torch.autograd.function import BackwardCFunction, FunctionCtx
from torch.autograd.grad_mode import _unsafe_preserve_version_counter
from torch.fx._lazy_graph_module import _LazyGraphModule as LazyGraphModule
from torch.fx.node import _get_qualified_name
from torch.nn.modules.batchnorm import _BatchNorm as BatchNorm
from torch.overrides import TorchFunctionMode, _get_current_function_mode_stack, _pop_mode, _push_mode
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
    is_traceable_wrapper_subclass,
)
from torch.utils._python_dispatch import (
    _pop_mode as _pop_dispatch_mode,
)
from torch.utils._python_dispatch import (
    _push_mode as _push_dispatch_mode,
)

from aotlens.errors import DYNAMO_FRAMES
from aotlens.torch_range import note_once

__all__ = [
    "BACKWARD_CALL",
    "CPU_KERNEL_SETTINGS",
    "DATA_DEPENDENT_ERRORS",
    "GPU_KERNEL_SETTINGS",
    "NOT_WRITTEN",
    "OWN_LOWERINGS",
    "SYMBOLIC_FUNCTIONS",
    "BatchNorm",
    "CacheEvent",
    "DynamoConstant",
    "DynamoGraph",
    "DynamoGuards",
    "DynamoLoss",
    "DynamoRecompile",
    "FakeScriptObject",
    "FakeTensor",
    "FakeTensorMode",
    "Frames",
    "GuardMiss",
    "LazyGraphModule",
    "OpOverload",
    "OpOverloadPacket",
    "ScriptObject",
    "TorchBindOpOverload",
    "TorchDispatchMode",
    "TorchFunctionMode",
    "TracingContext",
    "UnsupportedOperatorException",
    "accelerators_unasked",
    "as_torch_composes",
    "asking_modes",
    "assert_size_stride",
    "assumed_sizes",
    "attribute_text",
    "auto_functionalized",
    "auto_functionalized_v2",
    "below_autograd",
    "below_views",
    "call_torchbind",
    "can_auto_functionalize",
    "check",
    "check_later",
    "checkpoints_run_once",
    "choices_handled_by",
    "class_of_object",
    "compile_id",
    "compile_with_inductor",
    "compiling_modules",
    "composed",
    "counts_writes",
    "current_autograd_node",
    "current_dispatch_modes",
    "current_fake_mode",
    "current_mode",
    "custom_backwards_told",
    "debug_assert",
    "decompositions_in_python",
    "dense_kernel",
    "detect_fake_mode",
    "device_for_autograd",
    "device_of_new_tensors",
    "device_random_state_handled_by",
    "dispatch_modes",
    "draws_as_usual",
    "draws_in_kernels",
    "dynamo_cache_counts",
    "dynamo_compiles",
    "dynamo_knows",
    "dynamo_value",
    "example_sizes",
    "fake_collectives_draw_apart",
    "fake_of",
    "fakes_without_devices",
    "first_expression",
    "fix_sizes",
    "flex_gradients_on_cpu",
    "forecasting_settings",
    "forked_after_cuda",
    "frames_left_out",
    "function_calls_handled_by",
    "function_graphs_applied_by",
    "function_mode_below",
    "function_modes",
    "function_modes_of_the_user",
    "functionalizes_rng",
    "functorch_names",
    "generators_noted_by",
    "get_decompositions",
    "gradient_of",
    "gradients_told",
    "graph_module_hooks",
    "graph_picture_format",
    "has_composite_kernel",
    "has_ordered_effect",
    "has_saved_tensor_hooks",
    "hide_from_dynamo",
    "hold_gpu",
    "hooked_values",
    "hooks_told",
    "in_callers_context",
    "indexing_by_tensors",
    "indices_prepared_by",
    "inductor_config_patch",
    "inductor_decompositions",
    "inductor_folder",
    "inductor_rules_of_others",
    "inductor_settings",
    "inside_transforms",
    "interpreting_modules",
    "invoke_subgraph",
    "is_any_autocast_enabled",
    "is_batched",
    "is_contiguous",
    "is_default_backend",
    "is_functional",
    "is_functionalized",
    "is_graph_value",
    "is_pending_collective",
    "is_recorded",
    "is_same_number",
    "is_traceable_wrapper_subclass",
    "is_view_of_custom_function",
    "kernel_settings",
    "kernels_from",
    "keys_without_cuda_autocast",
    "know_grouped_products",
    "know_strides_of_views",
    "known_number",
    "launched_as_operator",
    "leave_to_python",
    "linearization_handled_by",
    "listening_to_dynamo",
    "loaded_inductor_code",
    "made_on_cpu_first",
    "make_shape_env",
    "make_token",
    "mark_symbolic",
    "marked_static",
    "missing_gpu_replacements",
    "mode_settings",
    "names_of_generated",
    "new_number_symbol",
    "next_sequence_number",
    "node_at_line",
    "nones_wanted_told",
    "notes_its_views",
    "noting_views",
    "numbers_forgotten",
    "numbers_of_data",
    "object_methods_handled_by",
    "on_dynamo_compilation",
    "one_by_one",
    "optimised_script",
    "outside_of_dynamo",
    "paths_to_symbols",
    "pickled_inductor_code",
    "pretends_gpu",
    "print_expression",
    "python_dispatcher",
    "pytree",
    "qualified_name",
    "quiet_about_refused_kernels",
    "quiet_fake_tensors",
    "raise_as_inference_write",
    "random_state_handled_by",
    "record_dynamo_spans",
    "recording_flags",
    "refusing_fakes",
    "register_inductor_operators",
    "replace_compilation_in_higher_order",
    "replace_gradient_rule",
    "replace_while_tracing",
    "run_joint_passes",
    "saved_tensor_hooks",
    "saved_tensor_hooks_replaced",
    "set_joint_signature",
    "set_version",
    "setting_up_optimizers_in",
    "shares_versions",
    "sink_tokens",
    "sizes_of_gradient",
    "stand_in_object",
    "static_input",
    "strides_by_kernel",
    "strip_overloads",
    "suggest_memory_format",
    "symbolic_sizes",
    "take_back_assumed_sizes",
    "tell_of_silent_changes",
    "tensor_check",
    "tensor_metadata",
    "trace_above_autograd",
    "tracing",
    "transfer_to_cpu",
    "triton_kernel_wrapper_functional",
    "triton_operators",
    "triton_source",
    "turning_grad_on_told",
    "unbacked_symbols",
    "uncompiled_flex_attention",
    "unseen",
    "use_torchs_tools_for_triton",
    "users_function_modes",
    "vector_bits",
    "viewed_under_inference_mode",
    "wants_backward_at_once",
    "with_effects",
    "with_ragged_sizes",
    "with_random_numbers_of_eager",
    "with_true_device",
    "without_autocast",
    "without_compiled_autograd",
    "without_empty_notes",
    "without_fake_mode",
    "without_modes",
    "without_onednn",
    "without_python_rules",
    "without_saved_tensor_hooks",
    "wrapping_what_is_compiled",
    "write_keywords_as_names",
    "written_by_triton_kernel",
]

if note := note_once(torch.__version__):
    warnings.warn(note, stacklevel=2)


# Names as they are, and what operators are.

DATA_DEPENDENT_ERRORS: tuple[type[Exception], ...] = (
    DataDependentOutputException,
    DynamicOutputShapeException,
)
"""What fake tensors raise when the program needs a value."""

ScriptObject: Any = torch.ScriptObject
"""An object of a torchbind class."""

invoke_subgraph: Any = torch.ops.higher_order.invoke_subgraph
"""Calls a marked region, given as a function."""

make_token: Callable[[], Any] = torch.ops.prims._make_token.default

sink_tokens: Callable[[Any], None] = torch.ops.prims._sink_tokens.default
"""Begin and end of a chain of `with_effects` in a graph for Inductor."""

assert_size_stride: Callable[..., None] = torch._C._dynamo.guards.assert_size_stride
"""As Inductor's wrappers check what operators give them."""


def tensor_check(tensors: list[Any]) -> Callable[..., bool]:
    """Whether tensors, given each by each, have the types, devices, sizes, strides and bits that these have.

    They are different objects.  Under another mode of torch's the answer may be no.
    """
    made = torch._C._dynamo.guards.TensorGuards(*tensors, dynamic_dims_sizes=None, dynamic_dims_strides=None)
    return made.check


def dynamo_value(source: Any) -> Any:
    """What Dynamo's source stands for in the frame that it compiles; None where that is not known."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        return InstructionTranslator.current_tx().output.resolve_source_value(source)
    except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None


def device_of_new_tensors() -> torch.device | None:
    """What the caller has set as the default; None where nothing is."""
    return torch.get_default_device() if torch._C._len_torch_function_stack() else None


check = torch._check
"""Raises RuntimeError from within torch, as its own kernels do of their arguments."""

SYMBOLIC_FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    name: getattr(torch, f"_sym_{name}")
    for name in ("sqrt", "log2", "sin", "cos", "tan", "asin", "acos", "atan", "sinh", "cosh", "tanh")
    if hasattr(torch, f"_sym_{name}")
}
"""Functions of a symbolic number, as graphs call them."""


def has_composite_kernel(func: Any) -> bool:
    """Whether an operator is only ever a composition of others.

    A few have a composition and a kernel of their own too (`silu_backward`), which is what eager runs.
    """
    has_kernel, keys = torch._C._dispatch_has_kernel_for_dispatch_key, torch._C.DispatchKey
    name = func.name()
    return has_kernel(name, keys.CompositeImplicitAutograd) and not has_kernel(name, keys.CPU)


def has_ordered_effect(func: Any) -> bool:
    """Whether a call is seen outside of its results (it prints, or is registered so)."""
    return _get_effect(func) is not None


def dense_kernel(func: Any) -> Callable[..., Any] | None:
    """What a higher-order operator runs on plain tensors; None where it has nothing for all devices."""
    found: Callable[..., Any] | None = func.py_kernels.get(torch._C.DispatchKey.CompositeExplicitAutograd)
    return found


def qualified_name(function: Any) -> str:
    """The dotted name under which Python finds a function of torch's; empty where it cannot be told."""
    try:
        name = _get_qualified_name(function)
    except (RuntimeError, AttributeError):  # a lambda; an object that is called
        return ""
    return name if "." in name else f"builtins.{name}"


def decompositions_in_python() -> Any:
    """torch's module of operators taken apart, imported at its first use."""
    from torch._decomp import decompositions

    return decompositions


def get_decompositions(operators: list[Any]) -> dict[Any, Callable[..., Any]]:
    """Torch's own decompositions of some operators."""
    from torch._decomp import get_decompositions as look_up

    return dict(look_up(operators))


# Dispatch: modes that are on, and how far down an operator goes.

below_autograd = torch._C._AutoDispatchBelowAutograd
"""Within it, operators do not record autograd."""

below_views = torch._C._AutoDispatchBelowADInplaceOrView
"""Within it, operators neither record autograd nor mark results as views."""


def composed(func: Any) -> Callable[..., Any]:
    """An operator as the composition that eager runs, and not by a Python rule of torch's."""
    return lambda *args, **kwargs: func._op_dk(
        torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs
    )


def notes_its_views(func: Any) -> bool:
    """Whether an operator itself marks its results as views, and leaves that to none that it calls."""
    return bool(torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "ADInplaceOrView"))


def noting_views() -> AbstractContextManager[Any]:
    """Within it, views are marked as such again, where a mode is called below that."""
    exclude: Any = torch._C._SetExcludeDispatchKeyGuard
    guard: AbstractContextManager[Any] = exclude(torch._C.DispatchKey.ADInplaceOrView, False)
    return guard


dispatch_modes: Callable[[], int] = torch._C._len_torch_dispatch_stack
"""How many dispatch modes are on for this thread."""

function_modes: Callable[[], int] = torch._C._len_torch_function_stack
"""How many function modes are on for this thread."""

is_any_autocast_enabled: Callable[[], bool] = torch._C._is_any_autocast_enabled
"""Whether autocast is on for some device."""

without_autocast = torch._C._DisableAutocast
"""Within it, operators keep the dtypes that they are given."""

without_python_rules = torch._C._DisablePythonDispatcher
"""Within it, an operator that is a composition of others is composed as in eager, also where torch traces."""


def keys_without_cuda_autocast() -> AbstractContextManager[Any]:
    """Within it, operators go past the kernels that cast for CUDA's autocast."""
    keys = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastCUDA)
    guard: AbstractContextManager[Any] = torch._C._ExcludeDispatchKeyGuard(keys)
    return guard


@contextmanager
def without_onednn() -> Iterator[None]:
    """Let composite operators choose torch's own CPU kernels; `torch.backends.mkldnn.flags` warns of TF32."""
    before = torch._C._get_mkldnn_enabled()
    torch._C._set_mkldnn_enabled(False)
    try:
        yield
    finally:
        torch._C._set_mkldnn_enabled(before)


def as_torch_composes(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Run an operator that is a composition of others by torch's own kernel, as autograd does."""
    key = torch._C.DispatchKey.CompositeImplicitAutograd
    return func._op_dk(key, *args, **kwargs)


def without_modes() -> Any:
    """A context in which no dispatch mode is active."""
    return _disable_current_modes()


def current_dispatch_modes() -> list[Any]:
    """The active dispatch modes, the outermost first."""
    return list(_get_current_dispatch_mode_stack())


def current_mode() -> Any:
    """The innermost dispatch mode, or None."""
    stack = _get_current_dispatch_mode_stack()
    return stack[-1] if stack else None


def asking_modes(method: str) -> list[Any]:
    """That method of each dispatch mode that has it, the outermost first."""
    return [getattr(mode, method) for mode in _get_current_dispatch_mode_stack() if hasattr(mode, method)]


def is_recorded() -> bool:
    """Whether a recording of ours runs on this thread; a compiled function called in it is part of it."""
    return torch._C._len_torch_dispatch_stack() > 0 and bool(asking_modes("gradient_met"))


@contextmanager
def python_dispatcher(instead: dict[Any, Callable[..., Any]]) -> Iterator[None]:
    """Let operators use their Python kernels, which symbolic sizes need; those of `instead` use that one.

    Not dropout's: in evaluation the operator gives its argument back, the Python kernel a copy of it.
    """
    from torch._dispatch.python import enable_python_dispatcher

    changed: dict[Any, Any] = {torch.ops.aten.dropout.default: {}}
    for op, rule in instead.items():
        changed[op] = {
            key: rule if str(key) == "DispatchKey.Autograd" else kernel
            for key, kernel in op.py_kernels.items()
        }
    before = {op: dict(op.py_kernels) for op in changed}
    _set_kernels(changed)
    try:
        with enable_python_dispatcher():
            yield
    finally:
        _set_kernels(before)


def _set_kernels(kernels: dict[Any, Any]) -> None:
    """Give operators other Python kernels, in place."""
    for op, by_key in kernels.items():
        op.py_kernels.clear()
        op.py_kernels.update(by_key)
        op._dispatch_cache.clear()


def inside_transforms(tensor: torch.Tensor) -> torch.Tensor:
    """The tensor that the wrappers of `torch.func` (one for each `vmap` or `grad` around) stand for."""
    while torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def tell_of_silent_changes() -> None:
    """Make what no operator tells of known to the dispatch modes that ask for it.  Idempotent.

    `fake.data = source` calls `data_assigned(fake, source)` before it is done; `storage.resize_(size)` calls
    `storage_resized(storage, size)` in its place, since a fake storage has no memory; `fake.detach_()` and
    `fake.requires_grad_(False)` call `history_dropped(fake)` after they are done.
    """
    if "data" in vars(FakeTensor):
        return
    plain: Any = torch.Tensor.data
    resize: Any = torch.UntypedStorage.resize_

    def assign(target: Any, source: Any) -> None:
        for told in asking_modes("data_assigned"):
            told(target, source)
        plain.__set__(target, source)

    def resize_and_tell(storage: Any, size: Any) -> Any:
        asking = asking_modes("storage_resized")
        for told in asking:
            told(storage, size)
        return storage if asking else resize(storage, size)

    def detach_and_tell(target: Any) -> Any:
        torch.Tensor.detach_(target)
        for told in asking_modes("history_dropped") if not target.requires_grad else ():
            told(target)  # inference mode leaves a history as it is
        return target

    def require_and_tell(target: Any, requires_grad: bool = True) -> Any:
        torch.Tensor.requires_grad_(target, requires_grad)
        for told in asking_modes("history_dropped") if not requires_grad else ():
            told(target)
        return target

    FakeTensor.detach_ = detach_and_tell  # type: ignore[assignment]
    FakeTensor.requires_grad_ = require_and_tell  # type: ignore[assignment, method-assign]
    FakeTensor.data = property(plain.__get__, assign)  # type: ignore[assignment]
    torch.UntypedStorage.resize_ = resize_and_tell  # type: ignore[assignment, method-assign]


_GRADIENT: Any = torch.Tensor.grad


def gradient_of(tensor: Any) -> Any:
    """`tensor.grad`, of which nobody is told; None for what is no tensor."""
    with torch._C.DisableTorchFunction():  # a function mode would look for it anew
        return _GRADIENT.__get__(tensor) if isinstance(tensor, torch.Tensor) else None


@contextmanager
def gradients_told() -> Iterator[None]:
    """Within it, whoever reads or sets `tensor.grad` calls `gradient_met(tensor, "read" or "set")` of the
    dispatch modes that ask for it, which may name the tensor that stands for this one."""
    if "grad" in vars(torch.Tensor):
        yield
        return
    gradient = _GRADIENT

    def stand_in(target: Any, how: str) -> Any:
        told = (told(target, how) for told in asking_modes("gradient_met"))
        return next((one for one in told if one is not None), target)

    torch.Tensor.grad = property(  # type: ignore[assignment]
        lambda target: gradient.__get__(stand_in(target, "read")),
        lambda target, value: gradient.__set__(stand_in(target, "set"), value),
        gradient.__delete__,
    )
    try:
        yield
    finally:
        del torch.Tensor.grad


@contextmanager
def _replaced(owner: Any, **values: Any) -> Iterator[None]:
    """Within it, these attributes of a class or module of torch's have these values."""
    before = {name: getattr(owner, name) for name in values}
    for name, value in values.items():
        setattr(owner, name, value)
    try:
        yield
    finally:
        for name, value in before.items():
            setattr(owner, name, value)


@contextmanager
def hooks_told() -> Iterator[None]:
    """Within it, who registers a hook on a tensor calls `hook_met(tensor)` of the dispatch modes that ask."""
    register = torch.Tensor.register_hook

    def told(tensor: Any, hook: Any) -> Any:
        for tell in asking_modes("hook_met"):
            tell(tensor)
        return register(tensor, hook)

    with _replaced(torch.Tensor, register_hook=told):
        yield


@contextmanager
def function_graphs_applied_by(
    apply: Callable[[tuple[Any, Any], Any, dict[str, Any]], Any],
) -> Iterator[None]:
    """Within it, custom functions that Dynamo made two graphs of go there: graphs, arguments, settings."""
    module: Any = sys.modules.get("torch._functorch.autograd_function")
    kind = getattr(module, "AutogradFunctionApply", None)
    if kind is None:
        yield
        return
    usual = kind.__call__

    def call(self: Any, forward: Any, backward: Any, *args: Any, **how: Any) -> Any:
        if "saved_for_backward_idx" not in how or torch._C._functorch.peek_interpreter_stack() is not None:
            return usual(self, forward, backward, *args, **how)
        return apply((forward, backward), args, how)

    with _replaced(kind, __call__=call):
        yield


@contextmanager
def custom_backwards_told(tell: Callable[[Any, Any], None]) -> Iterator[None]:
    """Within it, `tell` gets each node of a custom function whose backward has run, and what that gives."""
    apply = BackwardCFunction.apply

    def told(self: Any, *gradients: Any) -> Any:
        found = apply(self, *gradients)
        tell(self, found)
        return found

    with _replaced(BackwardCFunction, apply=told):
        yield


@contextmanager
def nones_wanted_told(tell: Callable[[Any], None]) -> Iterator[None]:
    """Within it, `tell` gets each node of a custom function that asks for None in place of zeros."""
    ask = FunctionCtx.set_materialize_grads

    def asked(self: Any, value: bool) -> None:
        ask(self, value)
        if not value:
            tell(self)

    with _replaced(FunctionCtx, set_materialize_grads=asked):
        yield


@contextmanager
def indices_prepared_by(prepare: Callable[[Any], Any]) -> Iterator[None]:
    """Within it, what stands in the brackets behind a fake tensor is first given to `prepare`.

    Not where another mode or a transform looks at the function, as at those of higher-order operators, nor
    where torch's flex attention takes brackets itself.
    """
    if "__getitem__" in vars(FakeTensor):
        yield
        return
    get, put = torch.Tensor.__getitem__, torch.Tensor.__setitem__

    def prepared(index: Any) -> Any:
        if getattr(current_mode(), "is_body", True) or torch._C._functorch.maybe_current_level():
            return index
        names = (type(mode).__name__ for mode in _get_current_function_mode_stack())  # its import is slow
        return index if "TransformGetItemToIndex" in names else prepare(index)

    def read_in_brackets(self: Any, index: Any) -> Any:
        return get(self, prepared(index))

    def write_in_brackets(self: Any, index: Any, value: Any) -> None:
        put(self, prepared(index), value)

    FakeTensor.__getitem__ = read_in_brackets  # type: ignore[method-assign]
    FakeTensor.__setitem__ = write_in_brackets  # type: ignore[method-assign]
    try:
        yield
    finally:
        del FakeTensor.__getitem__, FakeTensor.__setitem__


# Autograd: its nodes, hooks on what it saves, checkpoints.

current_autograd_node: Callable[[], Any] = torch._C._current_autograd_node
"""The autograd node whose backward is running on this thread, or None."""

BACKWARD_CALL: CodeType = torch.autograd.graph._engine_run_backward.__code__
"""The frame that runs a backward: what lies within it is a custom function's or a hook's."""

next_sequence_number: Callable[[], int] = torch._C._autograd._get_sequence_nr
"""The number that the next autograd node of this thread will get."""


def in_callers_context(work: Callable[..., Any]) -> Callable[..., Any]:
    """The same work, with the context variables of who calls `backward`.

    Autograd's engine runs a GPU's part of a backward on a thread of its own.  Settings of Inductor's are such
    variables, and torch leaves the caller's where its own compiled backward finds them; before 2.12 it does
    not, and those of this moment stand for them.
    """
    known, owner = contextvars.copy_context(), threading.get_ident()

    def run(*args: Any) -> Any:
        left = torch._C._is_key_in_tls("context")
        context = torch._C._get_obj_in_tls("context") if left else None
        if context is None and threading.get_ident() != owner:
            context = known
        return work(*args) if context is None else context.copy().run(work, *args)

    return run


def is_view_of_custom_function(tensor: torch.Tensor) -> bool:
    """Whether a custom `autograd.Function` made the view, so that its own backward stands for it."""
    metas = torch._C._autograd.CreationMeta
    return tensor._is_view() and torch._C._autograd._get_creation_meta(tensor) == metas.IN_CUSTOM_FUNCTION


def is_batched(value: Any) -> bool:
    """Whether it stands for one gradient of several (`is_grads_batched`)."""
    return isinstance(value, torch.Tensor) and torch._C._functorch.is_legacy_batchedtensor(value)


def one_by_one(call: Callable[[list[Any]], Sequence[Any]], values: Sequence[Any]) -> list[Any]:
    """What a call gives for each of the batch's gradients, as one batch again.

    Autograd's tape lies below the batch: a custom function is part of it where it is called with each alone.
    """
    level = torch._C._vmapmode_increment_nesting() - 1
    torch._C._vmapmode_decrement_nesting()
    plain = [torch._remove_batch_dim(value, level, 1, 0) if is_batched(value) else value for value in values]
    size = next(len(one) for one, value in zip(plain, values, strict=True) if is_batched(value))
    each = [
        call([one[at] if is_batched(value) else one for one, value in zip(plain, values, strict=True)])
        for at in range(size)
    ]
    return [
        None if results[0] is None else torch._add_batch_dim(torch.stack(results), 0, level)
        for results in zip(*each, strict=True)
    ]


def counts_writes(tensor: torch.Tensor) -> bool:
    """Whether it has a version counter: an inference tensor without one takes writes in its mode alone."""
    try:
        return tensor._version >= 0
    except RuntimeError:
        return False


def shares_versions(one: torch.Tensor, other: torch.Tensor) -> bool:
    """Whether a write to the one counts as a write to the other: not so after `.data`, or with no counter."""
    if one.is_inference() or other.is_inference() or not (counts_writes(one) and counts_writes(other)):
        return True
    before = one._version
    with _unsafe_preserve_version_counter(other):
        torch.autograd.graph.increment_version(other)
        return one._version != before


def raise_as_inference_write() -> None:
    """Raise torch's own error for a write to an inference tensor outside of inference mode."""
    included = torch._C._dispatch_tls_local_include_set().remove(torch._C.DispatchKey.Python)
    nothing = included - included
    with without_modes(), torch._C._ForceDispatchKeyGuard(included, nothing):  # the check is autograd's
        with torch.inference_mode():
            made = torch.empty(())
        made.zero_()


def viewed_under_inference_mode(tensor: torch.Tensor) -> bool:
    """Whether a tensor that is none of inference itself is a view that was taken under `inference_mode`."""
    made = torch._C._autograd.CreationMeta.INFERENCE_MODE
    return tensor._base is not None and torch._C._autograd._get_creation_meta(tensor) == made


def sizes_of_gradient(tensor: torch.Tensor) -> tuple[Any, ...] | None:
    """The sizes in which the tensor's place in the tape takes a gradient; None where it has none."""
    step: Any = tensor.grad_fn
    return None if step is None else tuple(step._input_metadata[tensor.output_nr].shape)


@contextmanager
def without_compiled_autograd() -> Iterator[None]:
    """Let autograd's engine run a backward itself where the user has turned on compiled autograd."""
    exchange = torch._C._dynamo.compiled_autograd.set_autograd_compiler
    before = exchange(None, False)
    try:
        yield
    finally:
        exchange(*before)


def graph_module_hooks() -> tuple[Any, Any] | None:
    """The hooks on saved tensors that the caller has set last, where both are graph modules."""
    hooks = torch._C._autograd._top_saved_tensors_default_hooks(True)
    if hooks is None or not all(isinstance(hook, torch.fx.GraphModule) for hook in hooks):
        return None
    return hooks[0], hooks[1]


def has_saved_tensor_hooks() -> bool:
    """Whether the caller has set any hooks on saved tensors."""
    return bool(saved_tensor_hooks())


def saved_tensor_hooks() -> tuple[Callable[[Any], Any], ...]:
    """The pack and the unpack hook that autograd calls for the tensors it saves; empty without hooks."""
    return tuple(torch._C._autograd._top_saved_tensors_default_hooks(True) or ())


def hooked_values() -> str:
    """Which saved values get such hooks, as torch is told: `donated`, `no_static` or `all`."""
    from torch._functorch import config

    return str(config.saved_tensors_hooks_filtering_mode)


@contextmanager
def saved_tensor_hooks_replaced(pack: Callable[[Any], Any], unpack: Callable[[Any], Any]) -> Iterator[None]:
    """Within it, this pair stands in the place of all hooks on saved tensors that the caller has set."""
    if torch._C._autograd._top_saved_tensors_default_hooks(False) is None:
        yield
        return
    with without_saved_tensor_hooks():
        torch._C._autograd._push_saved_tensors_default_hooks(pack, unpack)
        try:
            yield
        finally:
            torch._C._autograd._pop_saved_tensors_default_hooks()


@contextmanager
def without_saved_tensor_hooks() -> Iterator[None]:
    """Take off all hooks on saved tensors that the caller has set, and put them back afterwards."""
    removed = []
    while (hooks := torch._C._autograd._top_saved_tensors_default_hooks(False)) is not None:
        removed.append(hooks)
        torch._C._autograd._pop_saved_tensors_default_hooks()
    try:
        yield
    finally:
        for hooks in reversed(removed):
            torch._C._autograd._push_saved_tensors_default_hooks(*hooks)


_recording = threading.local()
"""`region`: how the recording of this thread enters a checkpoint; absent where nothing records."""


@contextmanager
def checkpoints_run_once(region: Callable[..., AbstractContextManager[None]]) -> Iterator[None]:
    """Within it, `torch.utils.checkpoint` runs its function once, inside `region(context_fn, arguments)`."""
    _patch_checkpoint()
    before, _recording.region = getattr(_recording, "region", None), region
    try:
        yield
    finally:
        _recording.region = before


@cache
def _patch_checkpoint() -> None:
    """Let `torch.utils.checkpoint` ask the recording of its thread first; elsewhere it does as before."""
    import torch.utils.checkpoint

    module: Any = torch.utils.checkpoint
    without_reentry = "_checkpoint_without_reentrant_generator"
    if hasattr(module, f"{without_reentry}_impl"):  # from 2.14 on, where the other calls it
        without_reentry += "_impl"
    generate, apply = getattr(module, without_reentry), module.CheckpointFunction.apply
    parameters = signature(generate)

    def generate_once(*args: Any, **kwargs: Any) -> Iterator[None]:
        region = getattr(_recording, "region", None)
        if region is None:
            yield from generate(*args, **kwargs)
            return
        bound = parameters.bind(*args, **kwargs).arguments
        with region(bound.get("context_fn"), bound.get("args", ())):
            yield

    def apply_once(function: Any, preserve: Any, *args: Any) -> Any:
        region = getattr(_recording, "region", None)
        if region is None:
            return apply(function, preserve, *args)
        differentiable = any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
        with region(None, args), torch.set_grad_enabled(differentiable and torch.is_grad_enabled()):
            return function(*args)

    setattr(module, without_reentry, generate_once)
    module.CheckpointFunction.apply = staticmethod(apply_once)


def linearization_handled_by(instead: Callable[[Callable[[Any], Any], Any], Any]) -> None:
    """Have `torch.func.linearize` in a recorded function make its linear map by `instead`.

    It is given the derivative, which takes a tuple of tangents, and the tangents that torch would trace it
    on; the map takes tangents one by one and gives flat results.
    """
    from torch._functorch import eager_transforms
    from torch.fx.experimental.const_fold import split_const_subgraphs

    transforms: Any = eager_transforms
    real = transforms.lazy_dynamo_disallow

    def part(function: Any) -> Any:
        """What stands for one of its two parts: the tracing of the derivative, and the computing ahead."""
        if getattr(_recording, "region", None) is None:
            return real(function)
        if function is split_const_subgraphs:
            return lambda linear_map: linear_map
        if function is transforms.make_fx:
            return lambda derivative: lambda tangents: instead(_by_values_of_primals(derivative), tangents)
        return real(function)

    transforms.lazy_dynamo_disallow = part


def _by_values_of_primals(derivative: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """`torch.func.linearize`'s own derivative; for autograd its primals are constants."""
    cells = dict(zip(derivative.__code__.co_freevars, derivative.__closure__ or (), strict=True))
    primals = cells["flat_primals"]
    primals.cell_contents = tuple(primal.detach() for primal in primals.cell_contents)
    return derivative


# Higher-order operators and flex attention.


def replace_gradient_rule(operator: str, instead: Callable[..., Any]) -> None:
    """Ask `instead(operator, args, kwargs)` before torch's gradient rule for a higher-order operator.

    It answers NotImplemented where torch is to go on by itself.
    """
    func = getattr(torch.ops.higher_order, operator)
    key = torch._C.DispatchKey.Autograd
    original = func.py_kernels[key]

    def call(*args: Any, **kwargs: Any) -> Any:
        result = instead(func, args, kwargs)
        return original(*args, **kwargs) if result is NotImplemented else result

    func.py_kernels[key] = call
    func._dispatch_cache.clear()


def replace_compilation_in_higher_order(instead: Callable[..., Any]) -> None:
    """Ask `instead(function, args, kwargs)` before torch compiles a call of `torch.cond` or its like.

    It answers NotImplemented where torch is to go on by itself.
    """
    from torch._higher_order_ops import utils

    module: Any = utils
    original = getattr(module, "_hop_compile_and_call", None)
    if original is None:  # before 2.12
        module.setup_compilation_env = _compiling_once(module.setup_compilation_env, instead)
        return

    def call(fn: Any, args: Any, kwargs: Any = None) -> Any:
        result = instead(fn, args, kwargs or {})
        return original(fn, args, kwargs) if result is NotImplemented else result

    module._hop_compile_and_call = call


def _compiling_once(surround: Any, instead: Callable[..., Any]) -> Callable[[], Any]:
    """The context in which torch compiles a call by `torch.compile`: the first of this thread within it."""

    module: Any = torch

    @contextmanager
    def entered() -> Iterator[Any]:
        owner, compile_by_torch = threading.get_ident(), module.compile

        def compiled(fn: Any, **options: Any) -> Any:
            if threading.get_ident() != owner:
                return compile_by_torch(fn, **options)
            module.compile = compile_by_torch

            def call(*args: Any, **kwargs: Any) -> Any:
                result = instead(fn, args, kwargs)
                return (
                    compile_by_torch(fn, **options)(*args, **kwargs) if result is NotImplemented else result
                )

            return call

        with surround() as backend:
            module.compile = compiled
            try:
                yield backend
            finally:
                module.compile = compile_by_torch

    return entered


def without_empty_notes(operator: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, Any]:
    """A higher-order operator's arguments; without the operands that `map` writes to, where there are none.

    From 2.14 on it is told of them, here by position although it takes them by name only.
    """
    if operator != "map_impl":
        return args, kwargs
    written = kwargs.get("mutated_arg_indices") or "".join(args[3:])
    return args[:3], {"mutated_arg_indices": written} if written else {}


def indexing_by_tensors() -> Any:
    """A context in which `tensor[i]` with a scalar tensor `i` reads no value: flex attention needs it."""
    from torch._dynamo._trace_wrapped_higher_order_op import TransformGetItemToIndex  # imports Dynamo

    return TransformGetItemToIndex()


@contextmanager
def uncompiled_flex_attention(around: Callable[[], Any]) -> Iterator[None]:
    """Let `flex_attention` call its operator within `around()` and not compile it.

    Does nothing where nobody has imported it.
    """
    module: Any = sys.modules.get("torch.nn.attention.flex_attention")
    if module is None:
        yield
        return
    with _replaced(module, _FLEX_ATTENTION_DISABLE_COMPILE_DEBUG=True, setup_compilation_env=around):
        yield


@contextmanager
def flex_gradients_on_cpu() -> Iterator[None]:
    """Let `flex_attention` take CPU tensors that require grad, which torch refuses.

    Code for a GPU has no such limit, and the unfused implementation has a gradient.  Does nothing where
    nobody has imported it.
    """
    module: Any = sys.modules.get("torch.nn.attention.flex_attention")
    if module is None:
        yield
        return
    with _replaced(module, _validate_device=lambda query, key, value: None):
        yield


# Fake tensors and symbolic sizes.


def current_fake_mode() -> FakeTensorMode | None:
    """The mode of fake tensors that is on, wherever it stands among the modes."""
    found: FakeTensorMode | None = torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE)
    return found


without_fake_mode: Callable[[], AbstractContextManager[Any]] = unset_fake_temporarily
"""Within it, tensors are real."""


@contextmanager
def quiet_fake_tensors() -> Iterator[None]:
    """Keep fake tensors from logging a traceback of theirs for each error that the user's code makes."""
    logger = logging.getLogger(FakeTensorMode.__module__)
    before, logger.disabled = logger.disabled, True
    try:
        yield
    finally:
        logger.disabled = before


def _forget_number(value: Any) -> None:
    if type(value) is FakeTensor:
        number: Any = value.item_memo
        if type(number) in (int, float):
            value.item_memo = None
    elif is_traceable_wrapper_subclass(value):
        for name in value.__tensor_flatten__()[0]:
            _forget_number(getattr(value, name))


def fake_of(mode: FakeTensorMode, tensor: torch.Tensor, **sizes: Any) -> Any:
    """A real tensor as a fake one of a mode, whose value nobody knows.

    From 2.14 on, a fake tensor of one number that nothing guards keeps that number as a constant, for which a
    program would then be compiled.  The base of a view of another dtype torch views as that dtype whole, as
    its sizes may not allow: such a view is looked at without its base.
    """
    if not dynamo_knows(tensor) and tensor._base is not None and tensor._base.dtype is not tensor.dtype:
        with without_modes():
            tensor = tensor.detach()
    if mode.shape_env is not None and tensor.dim() and not dynamo_knows(tensor):
        sizes["source"] = _place_of_sizes(mode)
    fake = mode.from_tensor(tensor, **sizes)
    _forget_number(fake)
    return fake


def _place_of_sizes(mode: FakeTensorMode) -> Any:
    """What the symbols of a tensor's sizes are named after: how many tensors came before it.

    Torch would count those that are alive, which differs with what this process has run before.
    """
    from torch._dynamo.source import ConstantSource

    return ConstantSource(f"__meta_utils_unknown_tensor{mode.fake_tensor_converter.meta_converter.arg_cnt}")


class _SaidToBeBfloat16:
    """A tensor that gives another type when it is asked for it, and the same answers to all else."""

    dtype = torch.bfloat16

    def __init__(self, tensor: Any) -> None:
        self._tensor = tensor

    def __getattr__(self, name: str) -> Any:
        return getattr(self._tensor, name)


def attribute_text(path: str) -> str:
    """A path of attributes as Python text, also where a name in it is a keyword (`aten.random.from`)."""
    text, *rest = path.split(".")
    for name in rest:
        text = f"getattr({text}, {name!r})" if iskeyword(name) else f"{text}.{name}"
    return text


def write_keywords_as_names() -> None:
    """Have the text of fx's graphs call an operator whose name is a keyword of Python (`aten.random.from`).

    Idempotent, and for all graphs: torch's own text of such a call is no Python.
    """
    from torch.fx import graph

    module: Any = graph
    qualified = module._get_qualified_name
    if hasattr(qualified, "writes_keywords"):
        return

    def name_of(function: Any) -> str:
        path: str = qualified(function)
        return attribute_text(path) if isinstance(function, OpOverload) else path

    name_of.writes_keywords = True  # type: ignore[attr-defined]
    module._get_qualified_name = name_of


def is_pending_collective(value: object) -> bool:
    """Whether this is what a collective of eager's gives before anybody waits for it."""
    module: Any = sys.modules.get("torch.distributed._functional_collectives")
    return module is not None and isinstance(value, module.AsyncCollectiveTensor)


def fake_collectives_draw_apart() -> None:
    """Have the fake kernels of collectives take their random ids from a generator of their own.

    Idempotent: theirs is `random`, whose state is the user's.
    """
    module: Any = sys.modules.get("torch.distributed._meta_registrations")
    if module is not None and getattr(module, "random", None) is random:
        module.random = random.Random()


def know_grouped_products() -> None:
    """Have `_grouped_mm`'s fake kernel take the types that its kernels take, where it knows bfloat16 alone.

    Idempotent, and for all fake tensors: Inductor asks too.  The kernel's other checks stay.
    """
    from torch import _meta_registrations

    module: Any = _meta_registrations
    common = getattr(module, "_meta_grouped_mm_common", None)
    if common is None or hasattr(common, "knows_types"):
        return

    def product(mat_a: Any, mat_b: Any, **options: Any) -> Any:
        known = mat_a.dtype in (torch.float32, torch.float16) and mat_a.dtype is mat_b.dtype
        if options.get("scale_a") is not None or not known:
            return common(mat_a, mat_b, **options)
        check(
            options["out_dtype"] in (None, mat_a.dtype),
            lambda: "Grouped gemm output dtype must match `mat_a` dtype",
        )
        common(_SaidToBeBfloat16(mat_a), _SaidToBeBfloat16(mat_b), **{**options, "out_dtype": None})
        return module._create_grouped_mm_output_tensor(mat_a, mat_b, options["offs"], None)

    product.knows_types = True  # type: ignore[attr-defined]
    module._meta_grouped_mm_common = product


def know_strides_of_views() -> None:
    """Have the fake kernel of `view` give dimensions of size 1 the strides that the real kernel gives them.

    Operators read the memory format off those strides: a group norm whose input is contiguous by its fake
    strides alone fails when it runs.  Idempotent, and for all fake tensors: Inductor asks too.
    """
    from torch._subclasses import fake_impls

    kernels: Any = fake_impls.op_implementations_dict
    kernel = kernels.get(torch.ops.aten.view.default)
    strides_of: Any = getattr(fake_impls, "_compute_stride", None)
    if kernel is None or strides_of is None or hasattr(kernel, "knows_strides"):
        return
    oblivious = {"size_oblivious": True} if "size_oblivious" in signature(strides_of).parameters else {}

    def view(mode: FakeTensorMode, func: Any, source: Any, *shape: Any, **options: Any) -> Any:
        result = kernel(mode, func, source, *shape, **options)
        ones = [dim for dim, size in enumerate(result.shape) if type(size) is int and size == 1]
        if not ones:
            return result
        strides = strides_of(source.shape, source.stride(), result.shape, **oblivious)
        if strides is None or all(is_same_number(strides[dim], result.stride(dim)) for dim in ones):
            return result
        return source.as_strided(result.shape, strides)

    view.knows_strides = True  # type: ignore[attr-defined]
    kernels[torch.ops.aten.view.default] = view


def is_same_number(first: Any, second: Any) -> bool:
    """Whether two sizes are the same number or expression; asks nothing of symbols."""
    left, right = (value if type(value) is int else value.node.expr for value in (first, second))
    return bool(left == right)


def is_contiguous(tensor: torch.Tensor, memory_format: torch.memory_format = torch.contiguous_format) -> bool:
    """Whether a fake tensor is known to be contiguous in that format; asks nothing of symbols."""
    return is_contiguous_for_memory_format_or_false(tensor, memory_format=memory_format)


def strides_by_kernel(func: Any, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[int, ...]:
    """The strides of an operator's result by torch's kernel for meta tensors; takes known sizes."""
    with unset_fake_temporarily():
        metas = [
            torch.empty_strided(arg.shape, arg.stride(), dtype=arg.dtype, device="meta")
            if isinstance(arg, torch.Tensor)
            else arg
            for arg in args
        ]
        return tuple(func(*metas, **kwargs).stride())


def known_number(mode: FakeTensorMode, make: Callable[[], torch.Tensor]) -> FakeTensor:
    """A fake tensor that knows its value, from a small real one."""
    with unset_fake_temporarily():
        real = make()
    return mode.fake_tensor_converter.from_real_tensor(mode, real, make_constant=True)


def with_ragged_sizes(fake_mode: FakeTensorMode) -> FakeTensorMode:
    """Let a mode with known sizes get an environment of symbols when a jagged tensor is made in it.

    No subclass of the mode: higher-order operators find their kernels by its very class.
    """
    mode: Any = fake_mode
    create = mode.create_symbolic_nested_int

    def create_lazily(**options: Any) -> Any:
        if mode.shape_env is None:
            mode.shape_env = make_shape_env()
        return create(**options)

    mode.create_symbolic_nested_int = create_lazily
    return fake_mode


@contextmanager
def numbers_of_data(fake_mode: FakeTensorMode) -> Iterator[None]:
    """Within it, a number or size that only data tells is a symbol, and does not break the graph."""
    before = fake_mode.allow_scalar_outputs
    environment: Any = fake_mode.shape_env
    settings = getattr(environment, "settings", None)
    fake_mode.allow_scalar_outputs = True
    if environment is not None:
        known: Any = settings
        environment.settings = dataclasses.replace(known, allow_dynamic_output_shape_ops=True)
    try:
        yield
    finally:
        fake_mode.allow_scalar_outputs = before
        if environment is not None:
            environment.settings = settings


def numbers_forgotten(fake_mode: Any) -> Any:
    """Within it, symbols for numbers out of data belong to a run whose results nobody keeps."""
    environment = fake_mode.shape_env
    return nullcontext() if environment is None else environment.ignore_fresh_unbacked_symbols()


def first_expression(number: Any) -> Any:
    """A symbolic number as it was made, before anything was found out about its symbols."""
    return number.node._expr


MARK = "_dynamo_dynamic_indices"
"""Where `torch._dynamo.mark_dynamic` keeps which sizes of a tensor are symbols."""


def mark_symbolic(tensor: torch.Tensor, dims: set[int]) -> None:
    """Say that of this tensor's sizes just these are symbols, as `torch._dynamo.mark_dynamic` does."""
    setattr(tensor, MARK, dims)


def symbolic_sizes(tensor: torch.Tensor) -> Any:
    """How to make the marked sizes of a tensor symbols; None when nothing is marked."""
    marked = getattr(tensor, MARK, None)
    if marked is None:
        return None
    from torch.fx.experimental.symbolic_shapes import DimDynamic, StatelessSymbolicContext

    kinds = [DimDynamic.DUCK if dim in marked else DimDynamic.STATIC for dim in range(tensor.dim())]
    return StatelessSymbolicContext(dynamic_sizes=kinds)


def make_shape_env() -> Any:
    """A fresh environment of symbolic sizes."""
    from torch.fx.experimental.symbolic_shapes import ShapeEnv  # 0.6 s to import, only for dynamic shapes

    return ShapeEnv()


def new_number_symbol(environment: Any, value: int, name: str) -> torch.SymInt:
    """A symbol for a number of any sign that the caller passes, told apart from all sizes."""
    from torch._dynamo.source import ConstantSource
    from torch.fx.experimental.symbolic_shapes import DimDynamic

    source = ConstantSource(f"__number_{name}")
    symbol = environment.create_unspecified_symbol(value, source, DimDynamic.DYNAMIC)
    number: torch.SymInt = environment.create_symintnode(symbol, hint=value, source=source)
    return number


ASSUMED = ("replacements", "replacements_slocs", "var_to_range", "symbol_guard_counter")
"""What an environment of symbolic sizes keeps beside its guards when it makes one."""


def check_later(condition: Any) -> None:
    """Have what only the data tells be so: torch keeps the condition, and a graph checks it."""
    torch._check(condition)


def assumed_sizes(environment: Any) -> dict[str, Any]:
    """What an environment of symbolic sizes assumes by now."""
    return {"guards": len(environment.guards)} | {name: getattr(environment, name).copy() for name in ASSUMED}


def take_back_assumed_sizes(environment: Any, before: dict[str, Any]) -> None:
    """Let an environment assume again what it did before, and nothing more."""
    if len(environment.guards) == before["guards"]:
        return
    del environment.guards[before["guards"] :]
    for name in ASSUMED:
        known = getattr(environment, name)
        known.clear()
        known.update(before[name])
    for counter in ("_version_counter", "_replacements_version_counter"):  # what was looked up is out of date
        if hasattr(environment, counter):
            setattr(environment, counter, getattr(environment, counter) + 1)


def unbacked_symbols(environment: Any) -> set[Any]:
    """All symbols of an environment whose value only the data tells."""
    from torch.utils._sympy.symbol import SymT, symbol_is_type  # sympy is slow to import: for symbols only

    kinds = (SymT.UNBACKED_INT, SymT.UNBACKED_FLOAT)
    return {symbol for symbol in environment.var_to_range if symbol_is_type(symbol, kinds)}


def paths_to_symbols(val: Any, environment: Any, pending: set[Any]) -> dict[Any, Any]:
    """Where in a value some of the pending symbols stand, as `meta["unbacked_bindings"]` has it.

    Takes those out of `pending`.
    """
    from torch.fx.experimental.symbolic_shapes import _free_unbacked_symbols_with_path

    return _free_unbacked_symbols_with_path(val, (), shape_env=environment, pending=pending)


def example_sizes(mode: FakeTensorMode) -> dict[str, int]:
    """The example's sizes by the names of their symbols; none where no size is symbolic."""
    environment = mode.shape_env
    if environment is None:
        return {}
    known = getattr(environment, "backed_var_to_val", None) or getattr(environment, "var_to_val", {})
    return {str(symbol): int(value) for symbol, value in known.items() if value.is_Integer}


def print_expression(expression: Any, names: dict[str, str]) -> str:
    """A size expression as Python text over these names of its symbols."""
    from torch.utils._sympy.printers import PythonPrinter  # sympy: only under dynamic shapes

    class Printer(PythonPrinter):
        def _print_Symbol(self, symbol: Any) -> str:  # noqa: N802 (sympy's naming)
            return names[str(symbol)]

    return str(Printer().doprint(expression))


# Random numbers, and objects of torchbind classes.


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


@contextmanager
def function_calls_handled_by(handle: Callable[..., Any]) -> Iterator[None]:
    """Within it, a call of a custom `autograd.Function` in this thread is `handle(apply, args, kwargs)`.

    No function mode sees its arguments.
    """
    owner, real = threading.get_ident(), vars(torch.autograd.Function)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        call = real.__get__(None, cls)
        return handle(call, args, kwargs) if threading.get_ident() == owner else call(*args, **kwargs)

    function: Any = torch.autograd.Function
    function.apply = classmethod(apply)
    try:
        yield
    finally:
        function.apply = real


@contextmanager
def function_mode_below(mode: Any) -> Iterator[Callable[[], None]]:
    """Gives a function that puts the mode under all function modes of this thread; it goes at the end."""
    entered: list[Any] = []

    def enter() -> None:
        if not entered:
            entered.append(mode)
            _restack(lambda modes: [mode, *modes])

    try:
        yield enter
    finally:
        if entered:
            _restack(lambda modes: [one for one in modes if one is not mode])


class _Unseen(threading.local):
    """What one thread has put aside."""

    is_on = False
    function_modes: tuple[Any, ...] = ()


_UNSEEN = _Unseen()


@contextmanager
def unseen(name: str) -> Iterator[None]:
    """Within it, what runs is not seen by modes of the user's; a profiler sees one event of this name."""
    if _UNSEEN.is_on:
        yield
        return
    with ExitStack() as stack:
        if torch.autograd._profiler_enabled():  # type: ignore[attr-defined]
            stack.enter_context(torch.autograd.profiler.record_function(f"aotlens: {name}"))
            torch._C._autograd._enable_record_function(False)
            stack.callback(torch._C._autograd._enable_record_function, True)
        if torch._C._len_torch_function_stack():
            stack.enter_context(_function_modes_aside())
        if torch._C._len_torch_dispatch_stack():
            stack.enter_context(_dispatch_modes_aside())
        _UNSEEN.is_on = True
        stack.callback(setattr, _UNSEEN, "is_on", False)
        yield


def function_modes_of_the_user() -> tuple[type, ...]:
    """Their classes, the outermost first."""
    if not torch._C._len_torch_function_stack():
        return ()
    return tuple(type(mode) for mode in _get_current_function_mode_stack() if _is_users(mode))


def _is_users(mode: Any) -> bool:
    return not type(mode).__module__.startswith(("torch.utils._device", "torch._", "aotlens."))


@contextmanager
def _function_modes_aside() -> Iterator[None]:
    stack = _get_current_function_mode_stack()
    _UNSEEN.function_modes = tuple(mode for mode in stack if _is_users(mode))
    try:
        _restack(lambda modes: [mode for mode in modes if not _is_users(mode)])
        yield
    finally:
        _UNSEEN.function_modes = ()
        _restack(lambda _: stack)


@contextmanager
def users_function_modes() -> Iterator[None]:
    """Within it, the user's function runs under the user's own function modes, as in eager."""
    own = _UNSEEN.function_modes
    for mode in own:
        _push_mode(mode)
    try:
        yield
    finally:
        for _ in own:
            _pop_mode()


@contextmanager
def _dispatch_modes_aside() -> Iterator[None]:
    """Without modes of the user's; those that make tensors fake, functional or symbolic stay."""
    stack = [mode for mode in _get_current_dispatch_mode_stack() if getattr(mode, "_mode_key", None) is None]
    own = [mode for mode in stack if type(mode).__module__.startswith("aotlens.")]
    try:
        for _ in stack:
            _pop_dispatch_mode()
        for mode in own:
            _push_dispatch_mode(mode)
        yield
    finally:
        for _ in own:
            _pop_dispatch_mode()
        for mode in stack:
            _push_dispatch_mode(mode)


def _restack(change: Callable[[list[Any]], list[Any]]) -> None:
    """Change the stack of function modes, which is given and wanted from the lowest to the highest."""
    modes = [_pop_mode() for _ in range(torch._C._len_torch_function_stack())]
    for mode in change(modes[::-1]):
        _push_mode(mode)


def set_version(tensors: list[torch.Tensor], versions: list[int]) -> None:
    """Say how often each was written to."""
    if tensors:
        torch._C._autograd._unsafe_set_version_counter(tuple(tensors), tuple(versions))


@contextmanager
def generators_noted_by(note: Callable[[torch.Generator], None]) -> Iterator[None]:
    """Within it, each `torch.Generator()` that this thread makes is told of."""
    owner, real = threading.get_ident(), torch.Generator
    module: Any = torch

    class Kind(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            made = real(*args, **kwargs)
            if threading.get_ident() == owner:
                made = made.clone_state()  # which operators are given as this very object
                note(made)
            return made

        def __instancecheck__(cls, one: Any) -> bool:
            return isinstance(one, real)

        def __getattr__(cls, name: str) -> Any:
            return getattr(real, name)

    module.Generator = Kind("Generator", (), {})
    try:
        yield
    finally:
        module.Generator = real


@contextmanager
def turning_grad_on_told(tell: Callable[[], None]) -> Iterator[None]:
    """Within it, `tell` is called where code outside of torch turns grad mode on, whatever it was before.

    What `no_grad` does at its end is no such call.
    """
    enter, init = torch.enable_grad.__enter__, torch.set_grad_enabled.__init__
    own = (inspect.getfile(torch.enable_grad), torch.utils._contextlib.__file__)
    inside = os.path.dirname(torch.__file__) + os.sep

    def look() -> None:
        frame = sys._getframe(2)
        while frame.f_back is not None and frame.f_code.co_filename in own:
            if frame.f_code.co_name == "__exit__":
                return
            frame = frame.f_back
        if not frame.f_code.co_filename.startswith(inside):
            tell()

    def entered(self: Any) -> None:
        look()
        enter(self)

    def made(self: Any, mode: bool) -> None:
        if mode:
            look()
        init(self, mode)

    kinds: Any = torch
    kinds.enable_grad.__enter__, kinds.set_grad_enabled.__init__ = entered, made
    try:
        yield
    finally:
        kinds.enable_grad.__enter__, kinds.set_grad_enabled.__init__ = enter, init


@contextmanager
def device_random_state_handled_by(state: Any) -> Iterator[None]:
    """Within it, this thread's `torch.cuda.manual_seed`, `torch.cuda.get_rng_state` and their like speak to
    `state`."""
    owner = threading.get_ident()
    instead = {
        "get_rng_state": state.get_device_state,
        "set_rng_state": state.set_device_state,
        "manual_seed": state.seed_devices,
        "manual_seed_all": state.seed_devices,
    }
    real = {name: getattr(torch.cuda, name) for name in instead}

    def of_this_thread(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            chosen = instead if threading.get_ident() == owner else real
            return chosen[name](*args, **kwargs)

        return call

    for name in instead:
        setattr(torch.cuda, name, of_this_thread(name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(torch.cuda, name, function)


def class_of_object(value: Any) -> str:
    """The name of a torchbind object's class."""
    return str(value._type().qualified_name()).removeprefix("__torch__.torch.classes.")


def stand_in_object(fake_mode: FakeTensorMode, value: Any) -> Any:
    """An object of the class that is registered for tracing; the object itself where there is none."""
    qualified = str(value._type().qualified_name())
    if not qualified.startswith("__torch__.torch.classes.") or not has_fake_class(qualified):
        return value
    logger = logging.getLogger("torch._library.fake_class_registry")
    level = logger.level
    logger.setLevel(logging.ERROR)  # it warns of each method that the class does not need
    _objects.being_read = True
    try:
        return maybe_to_fake_obj(fake_mode, value)
    finally:
        logger.setLevel(level)
        _objects.being_read = False


_objects = threading.local()
"""`being_read`: whether torch reads an object of this thread's recording to make its stand-in."""


@contextmanager
def object_methods_handled_by(call: Callable[..., Any]) -> Iterator[None]:
    """Within it, this thread's calls of an object's methods go to `call(owner, name, args, kwargs)`."""
    owner, real = threading.get_ident(), torch.ScriptMethod.__call__

    def handled(method: Any, *args: Any, **kwargs: Any) -> Any:
        own = threading.get_ident() == owner and not getattr(_objects, "being_read", False)
        if not own or not isinstance(method.raw_owner, torch.ScriptObject):
            return real(method, *args, **kwargs)
        return call(method.raw_owner, method.name, args, kwargs)

    script_method: Any = torch.ScriptMethod
    script_method.__call__ = handled
    try:
        yield
    finally:
        script_method.__call__ = real


# The user's own Triton kernels.


def written_by_triton_kernel(launch: dict[str, Any]) -> list[str]:
    """The names of the arguments that the kernel of a `triton_kernel_wrapper_mutation` writes to.

    Torch reads them off the kernel's intermediate code; where it cannot, every tensor counts as written.
    """
    rest = (launch["kwargs"], launch["tma_descriptor_metadata"])
    with _some_triton_target():
        return list(get_mutated_tensors(launch["kernel_idx"], launch["constant_args_idx"], *rest))


@contextmanager
def quiet_about_refused_kernels() -> Iterator[None]:
    """Within it torch logs no traceback where Triton refuses a kernel; our report says it in one sentence."""
    logger = logging.getLogger("torch._dynamo")
    logger.addFilter(_is_no_refused_kernel)
    try:
        yield
    finally:
        logger.removeFilter(_is_no_refused_kernel)


def _is_no_refused_kernel(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith("Encountered an exception in identify_accessed_tensors")


def triton_operators() -> dict[Any, Callable[..., Any]]:
    """The user's `torch.library.triton_op`s that write to no argument, each with the function behind it.

    Torch takes that function for the fake kernel too.
    """
    library = sys.modules.get("torch._library.triton")
    if library is None:
        return {}
    from torch._library.custom_ops import OPDEFS

    found = {name: OPDEFS[name] for name in library.triton_ops_to_kernels if name in OPDEFS}
    operators = {definition._opoverload: definition._abstract_fn for definition in found.values()}
    return {op: function for op, function in operators.items() if not op._schema.is_mutable}


def launched_as_operator(kernel: Any, grid: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Launch a Triton kernel by the operator that Dynamo writes for it."""
    from torch._library.triton import set_wrap_triton_enabled

    with set_wrap_triton_enabled(True):
        torch.library.wrap_triton(kernel)[grid](*args, **kwargs)


def triton_source(kernel: Any) -> str:
    """A kernel's own text, with the functions and constants that it takes from its module."""
    from torch._inductor.codegen.wrapper import user_defined_triton_kernel_transitive_closure_source_code

    return str(user_defined_triton_kernel_transitive_closure_source_code(kernel))


@contextmanager
def _some_triton_target() -> Iterator[None]:
    """Within it Triton translates kernels for some GPU, where it knows of none.

    What a kernel writes to does not depend on the GPU.
    """
    if find_spec("triton") is None:
        yield
        return
    import triton
    from triton.backends.compiler import GPUTarget

    known = triton.runtime.driver
    before = known._active
    try:
        known.active.get_current_target()
    except (RuntimeError, AssertionError):  # no driver of Triton finds a device, or its library
        known._active = SimpleNamespace(get_current_target=lambda: GPUTarget("cuda", 90, 32))
    try:
        yield
    finally:
        known._active = before


# Dynamo.


def hide_from_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which Dynamo neither traces nor looks into."""
    from torch._dynamo import disable

    return disable(function)


def outside_of_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """The function itself; Dynamo compiles neither its frames nor those of what it calls.

    Dynamo need not be loaded for that, as it must for `torch.compiler.disable`.
    """
    skip = eval_frame._FrameAction.SKIP
    code = function.__code__
    eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(skip, skip))
    return function


def replace_while_tracing(function: Callable[..., Any], traced: Callable[..., Any]) -> None:
    """Have Dynamo trace `traced` where it meets a call of `function`, unless it has a rule for that.

    It has one for what has a name of torch's when it reads its list: it passes over `torch.compile`, whatever
    that is by then.  Idempotent.
    """
    from torch._dynamo.trace_rules import get_torch_obj_rule_map

    if function not in get_torch_obj_rule_map():
        torch.compiler.substitute_in_graph(function, skip_signature_check=True)(traced)


def leave_to_python(function: Any) -> None:
    """Tell Dynamo, and autograd when it is compiled, not to trace a function; costs nothing per call."""
    function._torchdynamo_disable = True


def is_functional(tensor: Any) -> bool:
    """Whether `torch.func.functionalize` made the tensor."""
    return bool(torch._is_functional_tensor(tensor))


def is_functionalized() -> bool:
    """Whether what runs now stands under `torch.func.functionalize`."""
    level = torch._C._functorch.peek_interpreter_stack()
    return level is not None and level.key() == torch._C._functorch.TransformType.Functionalize


def is_graph_value(value: Any) -> bool:
    """Whether Dynamo writes such an object into a graph as it is: a placement of a distributed tensor."""
    try:
        from torch._library.opaque_object import is_opaque_value_type
    except ImportError:  # torch 2.11 writes none
        return False
    return bool(is_opaque_value_type(type(value)))


def compile_id() -> tuple[int, int] | None:
    """The frame that Dynamo compiles now and how often it did before; None where it compiles none."""
    current = CompileContext.current_compile_id()
    if current is None or current.frame_id is None or current.frame_compile_id is None:
        return None
    return current.frame_id, current.frame_compile_id


@contextmanager
def on_dynamo_compilation(notify: Callable[[bool], None]) -> Iterator[None]:
    """Within the block, call `notify` with True as Dynamo starts to compile, with False at the end."""
    from torch._dynamo.callback import callback_handler  # Dynamo takes seconds to import

    def begins(*args: Any) -> None:
        notify(True)

    def ends(*args: Any) -> None:
        notify(False)

    callback_handler.register_start_callback(begins)
    callback_handler.register_end_callback(ends)
    try:
        yield
    finally:
        callback_handler.remove_start_callback(begins)
        callback_handler.remove_end_callback(ends)


def dynamo_knows(tensor: Any) -> bool:
    """Whether Dynamo has seen the tensor in the frame that it compiles now."""
    context = TracingContext.try_get()
    return context is not None and tensor in context.tensor_to_context


def fix_sizes(mode: FakeTensorMode, wrapper: Any, jagged: bool) -> dict[str, Any]:
    """Have Dynamo compile anew for a wrapper of its frame with other sizes, or other ones inside.

    Dynamo refuses where a size is marked, as a jagged tensor marks the longest and the shortest row: these
    come back by their names, as fake tensors of Dynamo's symbols.  The rows of a view are those of its base.
    """
    context, env = TracingContext.try_get(), mode.shape_env
    if context is None or env is None or wrapper not in context.tensor_to_context:
        return {}
    first, marked = context.tensor_to_context[wrapper], {}
    base = first.view_base_context if jagged else None
    inner = getattr(first, "inner_contexts", {})
    for name, known in (("", first), *inner.items(), *((("", base),) if base is not None else ())):
        if jagged and any(one is not None and not one.warn_only for one in known.constraint_sizes):
            if name:
                source = known.tensor_source
                marked[name] = mode.from_tensor(getattr(wrapper, name), symbolic_context=known, source=source)
            continue
        for size in known.shape_env_to_source_to_symbol_cache.get(id(env), {}).values():
            if size.is_symbol and size in env.var_to_range:  # a ragged size has none
                env.evaluate_expr(size)
    return marked


Frames = tuple[traceback.FrameSummary, ...]
"""Source locations, outermost first; columns where they are known."""


class DynamoLoss(NamedTuple):
    """Code that Dynamo leaves in eager."""

    root: CodeType
    """The function that Dynamo was compiling."""
    frames: Frames
    """Down to where Dynamo stopped, from the frames that called the compiled function on."""
    effect: str | None
    """Dynamo's sentence on what becomes of the function; None where it was given up outside of tracing."""
    message: str
    compile_id: str = ""
    """`2/0`; empty where no compilation had begun."""
    is_error: bool = False
    """Whether the user's program gets it as an exception: `fullgraph=True`."""


class GuardMiss(NamedTuple):
    """The first guard of a cache entry that a call failed."""

    entry: str
    """The compilation that the guard belongs to, `0/0`."""
    reason: str
    """The guard's code as Dynamo prints it, with its source line behind it where that is known."""
    passed: int
    """How many guards of the entry the call passed before."""
    frames: Frames
    """Where the guard was made; empty where Dynamo does not say."""
    closure: Mapping[str, Any]
    """What names in the guard's code stand for, beside the frame's."""


class DynamoRecompile(NamedTuple):
    """A call that none of the compilations of its function serves."""

    code: CodeType
    compile_id: str
    """Of the new compilation."""
    misses: tuple[GuardMiss, ...]
    """The entry that was used last stands first."""
    scope: Mapping[str, Any]
    """`L` and `G` of the new call."""
    above: Frames
    """The frames that called the function."""


class DynamoConstant(NamedTuple):
    """A size or number that Dynamo makes a constant."""

    root: CodeType
    sources: tuple[str, ...]
    """Where the value comes from, as guards write it: `L['x'].size()[0]`."""
    value: int | float
    symbol: str
    """The symbol that it was before, `s12`; empty where it never was one."""
    reason: str
    frames: Frames


class DynamoGuards(NamedTuple):
    """The guards of one compilation."""

    code: CodeType
    compile_id: str
    made: tuple[tuple[str, str, Frames], ...]
    """Of each guard its source (`L['x']`), its code, and where it was made."""
    leaves: int
    """How many checks a call that meets all of them makes."""
    scope: Mapping[str, Any]
    check: Callable[[], bool]
    """Evaluate all of them on the values of the call that was compiled."""


class DynamoGraph(NamedTuple):
    """A graph that Dynamo had compiled."""

    code: CodeType
    compile_id: str
    ends_at_break: bool


class CacheEvent(NamedTuple):
    """A lookup in one of torch's caches of compiled code."""

    cache: str
    outcome: Literal["hit", "miss", "bypass"]
    components: tuple[str, ...]
    """The parts of the key, each `[digest] name: text`; empty where torch does not say."""
    reason: str
    """Torch's own reason for a miss or bypass; empty where it has none."""
    compile_id: str


class DynamoListener(Protocol):
    """What `listening_to_dynamo` reports to, each call from within the compilation."""

    counts_calls: bool
    """Whether every run of a graph is reported, not the first alone."""

    def frame_begins(self, code: CodeType, wraps: Any) -> None:
        """Dynamo looks at a function; `wraps` is what a wrapper of torch's calls."""

    def frame_ends(self, code: CodeType) -> None: ...
    def skips(self, code: CodeType, reason: str) -> None: ...
    def loses(self, loss: DynamoLoss) -> None: ...
    def recompiles(self, recompile: DynamoRecompile) -> None: ...
    def makes_constant(self, constant: DynamoConstant) -> None: ...
    def guards_size(self, expression: str, frames: Frames) -> None: ...
    def makes_guards(self, guards: DynamoGuards) -> None: ...
    def starts_line(self, lines: Iterator[tuple[str, int]]) -> None:
        """Dynamo begins to trace a line; the callers' lines follow it, innermost first."""

    def phase_begins(self, name: str, compile_id: str) -> None: ...
    def looks_up(self, event: CacheEvent) -> None: ...
    def phase_ends(self, name: str) -> None: ...
    def runs(self, graph: DynamoGraph, inputs: Sequence[Any]) -> Callable[[Any], None]:
        """A graph is about to run for the first time; call the answer with its outputs, None on failure."""


@contextmanager
def listening_to_dynamo(listener: DynamoListener) -> Iterator[None]:
    """Within the block, report what Dynamo does to the listener.

    Every hook runs while something is compiled; a call that finds its compilation runs none.
    """
    from torch._dynamo import convert_frame, guards, output_graph, symbolic_convert, utils
    from torch.fx.experimental import symbolic_shapes

    events, shapes = utils.ChromiumEventLogger, symbolic_shapes.ShapeEnv
    translator = symbolic_convert.InstructionTranslatorBase
    hooks = (
        (translator, "log_graph_break", _on_break),
        (translator, "starts_line", _on_line),
        (convert_frame.ConvertFrameAssert, "__call__", _on_frame),
        (convert_frame.CatchErrorsWrapper, "_handle_skip", _on_skip),  # absent in 2.11
        (convert_frame, "get_and_maybe_log_recompilation_reasons", _on_recompile),
        (shapes, "_set_replacement", _on_replacement),
        (shapes, "create_symbol", _on_symbol),
        (shapes, "_log_guard", _on_size_guard),
        (output_graph.OutputGraph, "install_global_unsafe", _on_global),
        (events, "log_event_start", _on_phase_start),
        (events, "log_event_end", _on_phase_end),
    )
    saved = [(owner, name, getattr(owner, name)) for owner, name, _ in hooks if hasattr(owner, name)]
    hook = guards.guard_manager_testing_hook_fn
    for owner, name, make in hooks:
        if hasattr(owner, name):
            setattr(owner, name, make(getattr(owner, name), listener))
    guards.guard_manager_testing_hook_fn = _on_guards(hook, listener)
    try:
        with _listening_to_caches(listener):
            yield
    finally:
        guards.guard_manager_testing_hook_fn = hook
        for owner, name, original in saved:
            setattr(owner, name, original)


_AOT_CACHE = "aotautograd_cache_"
"""How the names begin of what torch logs of its cache of AOT results."""


@contextmanager
def _listening_to_caches(listener: DynamoListener) -> Iterator[None]:
    """Report lookups: those of the AOT layer from its log, Inductor's once its module is loaded."""
    logs: Any = torch._logging
    from torch._dynamo.utils import ChromiumEventLogger

    original_log, begin = logs.trace_structured, ChromiumEventLogger.log_event_start
    undo: list[Callable[[], None]] = []

    def trace_structured(name: str, metadata_fn: Any = dict, *args: Any, **kwargs: Any) -> Any:
        if name == "artifact":
            with _harmless():
                kind = str(metadata_fn().get("name", ""))
                if kind.startswith(_AOT_CACHE) and "payload_fn" in kwargs:
                    info = json.loads(kwargs["payload_fn"]())
                    listener.looks_up(_cache_event("AOTAutograd", info))
        return original_log(name, metadata_fn, *args, **kwargs)

    def log_event_start(*args: Any, **kwargs: Any) -> None:
        codecache = sys.modules.get("torch._inductor.codecache")
        if not undo and hasattr(codecache, "FxGraphCache"):
            undo.append(_hook_inductors_cache(codecache, listener))
        begin(*args, **kwargs)

    logs.trace_structured = trace_structured
    ChromiumEventLogger.log_event_start = log_event_start
    try:
        yield
    finally:
        logs.trace_structured = original_log
        ChromiumEventLogger.log_event_start = begin
        for put_back in undo:
            put_back()


def _hook_inductors_cache(codecache: Any, listener: DynamoListener) -> Callable[[], None]:
    """Report each lookup, until the answer is called."""
    owner = codecache.FxGraphCache
    prepare, load = owner.prepare_key, owner.load_with_key

    def prepare_key(*args: Any, **kwargs: Any) -> Any:
        key, info = prepare(*args, **kwargs)
        if key is None:
            with _harmless():
                listener.looks_up(_cache_event("Inductor", info))
        return key, info

    def load_with_key(*args: Any, **kwargs: Any) -> Any:
        graph, info = load(*args, **kwargs)
        with _harmless():
            listener.looks_up(_cache_event("Inductor", info))
        return graph, info

    owner.prepare_key, owner.load_with_key = staticmethod(prepare_key), staticmethod(load_with_key)

    def put_back() -> None:
        owner.prepare_key, owner.load_with_key = staticmethod(prepare), staticmethod(load)

    return put_back


def _cache_event(cache: str, info: Any) -> CacheEvent:
    outcome: Any = info.get("cache_state") or "bypass"
    reason = str(info.get("cache_bypass_reason") or "")
    if outcome == "miss" and info.get("cache_status_detailed") == "guard_miss":
        reason = f"an entry is there, but its sizes must satisfy {info.get('cache_status_guard_expr')}"
    return CacheEvent(cache, outcome, tuple(info.get("components") or ()), reason, current_compile())


@contextmanager
def wrapping_what_is_compiled(
    wrap: Callable[[Callable[..., Any], Callable[..., Any]], Callable[..., Any]],
) -> Iterator[None]:
    """Within the block, `torch.compile` returns `wrap(function, compiled)` for each function it is given."""
    from torch._dynamo import eval_frame as frames

    context = frames._TorchDynamoContext
    original = context.__call__

    def call(self: Any, fn: Any) -> Any:
        compiled = original(self, fn)
        is_wrapper = isinstance(self, frames.OptimizeContext) and inspect.isfunction(compiled)
        return wrap(fn, compiled) if is_wrapper else compiled

    context.__call__ = call
    try:
        yield
    finally:
        context.__call__ = original


@contextmanager
def with_random_numbers_of_eager() -> Iterator[None]:
    """Within the block, code that Inductor compiles has the random numbers that eager has."""
    from torch._inductor import config

    with config.patch(fallback_random=True):
        yield


@contextmanager
def forecasting_settings(is_dynamic: bool) -> Iterator[None]:
    """Within the block Dynamo compiles a function as often as it must, with symbolic sizes where asked."""
    from torch._dynamo import config

    settings: dict[str, Any] = {"recompile_limit": 64}
    if is_dynamic:  # what `torch.compile(dynamic=True)` sets around its calls
        settings["assume_static_by_default"] = False
    with config.patch(settings):
        yield


def register_inductor_operators() -> None:
    """Have torch know the operators of its own (`prims`) that Inductor puts into graphs."""
    import torch._inductor.inductor_prims  # noqa: F401 (the import registers them)


def dynamo_cache_counts() -> Iterator[tuple[str, int, int, int]]:
    """Of torch's caches of compiled code: the name, hits, misses, and graphs that cannot be cached."""
    from torch._dynamo.utils import counters

    for name, group, prefix in (
        ("AOTAutograd", "aot_autograd", "autograd_cache"),
        ("Inductor", "inductor", "fxgraph_cache"),
    ):
        counted = counters.get(group, {})
        hits, misses, bypasses = (
            int(counted.get(f"{prefix}_{what}", 0)) for what in ("hit", "miss", "bypass")
        )
        yield name, hits, misses, bypasses


LOSSES = ("Unsupported", "RecompileLimitExceeded")
"""Dynamo's exceptions after which a frame runs in eager."""
_COMPILED_GRAPH = "__compiled_fn"
"""How the global begins under which a function that Dynamo wrote finds a compiled graph."""


@contextmanager
def _harmless() -> Iterator[None]:
    """Within the block, log an exception in place of raising it into the user's program."""
    try:
        yield
    except Exception:
        logging.getLogger("aotlens.dynamo").warning("a fact of Dynamo's could not be recorded", exc_info=True)


def _on_break(original: Callable[..., Any], listener: DynamoListener) -> Any:
    def log_graph_break(self: Any, code_options: Any, reason: str, exc: Any) -> None:
        if not exc.logged:
            with _harmless():
                listener.loses(_loss(self.output.root_tx.f_code, exc, reason, self))
        original(self, code_options, reason, exc)

    return log_graph_break


def _on_line(original: Callable[..., Any], listener: DynamoListener) -> Any:
    def starts_line(self: Any, line: int) -> None:
        original(self, line)
        with _harmless():
            listener.starts_line(_traced_lines(self))

    return starts_line


def _traced_lines(translator: Any) -> Iterator[tuple[str, int]]:
    while translator is not None:
        yield translator.f_code.co_filename, translator.lineno or translator.f_code.co_firstlineno
        translator = getattr(translator, "parent", None)


def _on_frame(original: Callable[..., Any], listener: DynamoListener) -> Any:
    def convert_frame(self: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        code = frame.f_code
        with _harmless():
            listener.frame_begins(code, frame.f_locals.get("fn") if _is_wrapper(code) else None)
        try:
            return original(self, frame, *args, **kwargs)
        except Exception as error:
            if type(error).__name__ in LOSSES and not getattr(error, "logged", False):
                is_error = bool(getattr(self, "_one_graph", False))
                with _harmless():
                    listener.loses(_loss(code, error, None, None)._replace(is_error=is_error))
            raise
        finally:
            with _harmless():
                listener.frame_ends(code)

    return convert_frame


def _is_wrapper(code: CodeType) -> bool:
    """Whether the function is Dynamo's own, around a function or module that it cannot enter directly."""
    return code.co_filename.endswith("external_utils.py")


def _on_skip(original: Callable[..., Any], listener: DynamoListener) -> Any:
    def handle_skip(self: Any, result: Any, frame: Any) -> Any:
        if result.skip_reason is not None and result.guarded_code is None:
            with _harmless():
                listener.skips(frame.f_code, str(result.skip_reason))
        return original(self, result, frame)

    return handle_skip


def _on_recompile(original: Callable[..., Any], listener: DynamoListener) -> Any:
    def recompilation_reasons(entries: Any, frame: Any, *args: Any, **kwargs: Any) -> Any:
        reasons = original(entries, frame, *args, **kwargs)
        with _harmless():
            misses = tuple(_misses(entries, reasons, frame))
            scope = {"L": frame.f_locals, "G": frame.f_globals}
            above = _frames_above_dynamo()
            listener.recompiles(DynamoRecompile(frame.f_code, current_compile(), misses, scope, above))
        return reasons

    return recompilation_reasons


def _misses(entries: Any, reasons: Sequence[str], frame: Any) -> Iterator[GuardMiss]:
    """In 2.11 the entries are a linked list."""
    if not isinstance(entries, list | tuple):
        linked, entries = entries, []
        while linked is not None:
            entries.append(linked)
            linked = linked.next
    by_entry = {reason.partition(":")[0]: reason for reason in reasons}
    for entry in entries:
        name = str(entry.compile_id)
        reason = by_entry.get(name)
        if reason is None:
            continue
        manager = entry.guard_manager
        checked = manager.check_verbose(frame.f_locals)
        stack = tuple(getattr(checked, "user_stack", None) or ())
        closure = dict(getattr(manager, "closure_vars", None) or {})
        yield GuardMiss(name, reason.partition(": ")[2], int(checked.num_guards_executed), stack, closure)


def _on_replacement(original: Callable[..., Any], listener: DynamoListener) -> Any:
    def set_replacement(self: Any, symbol: Any, value: Any, reason: str, *args: Any) -> None:
        before = self.replacements.get(symbol)
        original(self, symbol, value, reason, *args)
        if before == value or self.replacements.get(symbol) != value or not value.is_number:
            return
        with _harmless():
            root, frames = _traced_frames()
            sources = tuple(_source_name(source) for source in self.var_to_sources.get(symbol, ()))
            if root is not None and sources:
                number = int(value) if value.is_integer else float(value)
                listener.makes_constant(DynamoConstant(root, sources, number, str(symbol), reason, frames))

    return set_replacement


def _on_symbol(original: Callable[..., Any], listener: DynamoListener) -> Any:
    def create_symbol(self: Any, val: Any, source: Any, *args: Any, **kwargs: Any) -> Any:
        made = original(self, val, source, *args, **kwargs)
        dim = kwargs.get("dynamic_dim", args[0] if args else None)
        if type(val) is int and val in (0, 1) and made.is_number and getattr(dim, "name", "") != "STATIC":
            with _harmless():
                root, frames = _traced_frames()
                name = _source_name(source)
                if root is not None and "storage_offset" not in name:
                    listener.makes_constant(DynamoConstant(root, (name,), val, "", "0/1", frames))
        return made

    return create_symbol


def _on_size_guard(original: Callable[..., Any], listener: DynamoListener) -> Any:
    def log_guard(self: Any, prefix: str, guard: Any, *args: Any, **kwargs: Any) -> None:
        original(self, prefix, guard, *args, **kwargs)
        with _harmless():
            root, frames = _traced_frames()
            if root is not None:
                names = {str(symbol): name for name, symbol in self.source_to_var.items()}
                text = re.sub(r"\b[su]\d+\b", lambda match: names.get(match[0], match[0]), str(guard))
                listener.guards_size(text, frames)

    return log_guard


def _source_name(source: Any) -> str:
    name = source.name
    return str(name() if callable(name) else name)  # a method up to 2.11


def _traced_frames() -> tuple[CodeType | None, Frames]:
    """The function that Dynamo compiles now, and the frames that it traces; None where it traces none."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        translator: Any = InstructionTranslator.current_tx()
    except (AttributeError, AssertionError):
        return None, ()
    root = getattr(translator.output, "root_tx", None)
    return (None, ()) if root is None else (root.f_code, _summaries(translator))


def _summaries(translator: Any) -> Frames:
    names = [qualname for qualname, _, _ in reversed(_translator_codes(translator))]
    positions = _translator_positions(translator)
    if len(names) != len(positions):  # a frame without positions
        names = [""] * len(positions)
    return tuple(
        traceback.FrameSummary(
            file, line, name, lookup_line=False, end_lineno=end_line, colno=col, end_colno=end_col
        )
        for name, (file, line, col, end_line, end_col) in zip(names, reversed(positions), strict=True)
    )


def _on_guards(before: Any, listener: DynamoListener) -> Any:
    def guards_made(manager: Any, f_locals: Any, builder: Any) -> None:
        if before is not None:
            before(manager, f_locals, builder)
        with _harmless():
            listener.makes_guards(_guards(manager, f_locals, builder))

    return guards_made


def _guards(manager: Any, f_locals: Any, builder: Any) -> DynamoGuards:
    graph = builder.check_fn_manager.output_graph
    made = tuple(
        (str(guard.name), " and ".join(guard.code_list or ()), tuple(guard.user_stack or ()))
        for guard in graph.guards
    )
    scope = {"L": f_locals, "G": graph.global_scope}
    check = partial(manager.root.check, f_locals)
    return DynamoGuards(builder.f_code, current_compile(), made, _leaves(manager.root), scope, check)


def _leaves(manager: Any) -> int:
    """How many single checks a tree of guards holds."""
    below = list(manager.get_child_managers())
    if hasattr(manager, "get_key_value_managers"):
        pairs = manager.get_key_value_managers().values()
        below += [part for pair in pairs for part in pair if part is not None]
    return len(manager.get_leaf_guards()) + sum(map(_leaves, below))


def _on_phase_start(original: Callable[..., Any], listener: DynamoListener) -> Any:
    def log_event_start(self: Any, event_name: str, *args: Any, **kwargs: Any) -> None:
        original(self, event_name, *args, **kwargs)
        with _harmless():
            listener.phase_begins(event_name, current_compile())

    return log_event_start


def _on_phase_end(original: Callable[..., Any], listener: DynamoListener) -> Any:
    def log_event_end(self: Any, event_name: str, *args: Any, **kwargs: Any) -> None:
        with _harmless():
            listener.phase_ends(event_name)
        original(self, event_name, *args, **kwargs)

    return log_event_end


def _on_global(original: Callable[..., Any], listener: DynamoListener) -> Any:
    """Put a function that reports the first run in place of a compiled graph, until that run."""

    def install_global(self: Any, name: str, value: Any) -> None:
        if not name.startswith(_COMPILED_GRAPH) or self.root_tx is None:
            original(self, name, value)
            return
        reason = self.compile_subgraph_reason
        graph = DynamoGraph(self.root_tx.f_code, current_compile(), bool(reason and reason.graph_break))
        scope = self.global_scope

        def first(*args: Any, **kwargs: Any) -> Any:
            if not listener.counts_calls and scope.get(name) is hidden:
                scope[name] = value
            done: Callable[[Any], None] | None = None
            outputs = None
            with _harmless():
                done = listener.runs(graph, args)
            try:
                outputs = value(*args, **kwargs)
            finally:
                if done is not None:
                    with _harmless():
                        done(outputs)
            return outputs

        hidden = hide_from_dynamo(first)
        original(self, name, hidden)

    return install_global


def _frames_above_dynamo() -> Frames:
    """The Python frames that called the function which Dynamo compiles now, with their columns.

    Dynamo's own function for it takes apart the whole code of each frame, which takes longer than a small
    compilation where a script is large.
    """
    found: list[traceback.FrameSummary] = []
    frame = inspect.currentframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith("convert_frame.py"):
            found.clear()  # what was called from here on is Dynamo's
        elif not file.endswith("eval_frame.py"):
            found.append(_summary_of(frame))
        frame = frame.f_back
    return tuple(reversed(found))


def _summary_of(frame: FrameType) -> traceback.FrameSummary:
    code = frame.f_code
    line, end_line, col, end_col = next(
        islice(code.co_positions(), max(0, frame.f_lasti // 2), None), (None, None, None, None)
    )
    return traceback.FrameSummary(
        code.co_filename,
        line or frame.f_lineno,
        code.co_name,
        lookup_line=False,
        end_lineno=end_line,
        colno=col,
        end_colno=end_col,
    )


def current_compile() -> str:
    """What Dynamo compiles now, `2/0`; empty where it compiles nothing."""
    current = CompileContext.current_compile_id()
    return "" if current is None else str(current)


def _loss(root: CodeType, error: Any, effect: str | None, translator: Any) -> DynamoLoss:
    frames = tuple(getattr(error, DYNAMO_FRAMES, None) or ())
    if not frames and translator is not None:
        frames = _summaries(translator)
    message = str(getattr(error, "msg", "") or error)
    return DynamoLoss(root, (*_frames_above_dynamo(), *frames), effect, message, current_compile())


def frames_left_out() -> Iterator[tuple[str, int, str, str | None, int | None]]:
    """Functions that Dynamo has given up, the oldest first: file and first line, why, and where it stopped.

    Of the last 64 that it has looked at in this process.
    """
    from torch._dynamo.utils import get_compilation_metrics

    for found in get_compilation_metrics():
        if found.fail_type == "Unsupported":
            place = (found.fail_user_frame_filename, found.fail_user_frame_lineno)
            yield (
                str(found.co_filename),
                int(found.co_firstlineno or 0),
                str(found.fail_reason),
                place[0],
                place[1],
            )


def is_default_backend(backend: Any) -> bool:
    """Whether `torch.compile(backend=…)` means torch's own compiler, by name or by default."""
    if backend is None:
        from torch._dynamo.backends import registry

        chosen = getattr(registry, "get_default_backend", None)  # from 2.12 on a default can be set
        backend = "inductor" if chosen is None else chosen()
    return isinstance(backend, str) and backend == "inductor"


def mode_settings(mode: str | None, dynamic: bool | None) -> dict[str, Any]:
    """Inductor's settings for `torch.compile(mode=…)`."""
    if mode in (None, "default"):
        return {}
    from torch._inductor import list_mode_options  # loads Inductor, which such a program uses

    return dict(list_mode_options(mode, dynamic))


def node_at_line(module: Any, line: int) -> Any:
    """The node that a line of a graph module's generated code computes; None where that is not known."""
    index = (getattr(module, "_lineno_map", None) or {}).get(
        line - (getattr(module, "_prologue_start", 0) or 0)
    )
    nodes = list(module.graph.nodes)
    return nodes[index] if index is not None and index < len(nodes) else None


def record_dynamo_spans() -> None:
    """Make Dynamo leave the exact source ranges of each node in `meta["aotlens_spans"]`.

    Dynamo's own `stack_trace` is text with line numbers; the columns of a method chain cannot be told from
    it.  Idempotent.
    """
    from torch._dynamo.output_graph import SubgraphTracer

    original = SubgraphTracer.create_proxy
    if getattr(original, "records_spans", False):
        return

    def create_proxy(self: Any, *args: Any, **kwargs: Any) -> Any:
        proxy = original(self, *args, **kwargs)
        node = getattr(proxy, "node", None)
        if node is not None and "aotlens_spans" not in node.meta:
            translator = self.output_graph.current_tx
            node.meta["aotlens_spans"] = _translator_positions(translator)
            node.meta["aotlens_codes"] = _translator_codes(translator)
        return proxy

    create_proxy.records_spans = True  # type: ignore[attr-defined]
    SubgraphTracer.create_proxy = create_proxy


def _translator_positions(translator: Any) -> tuple[tuple[str, int, int, int, int], ...]:
    """(file, line, column, end line, end column) of each frame that Dynamo is in, innermost first."""
    found = []
    while translator is not None:
        positions = getattr(translator.current_instruction, "positions", None)
        if positions is not None and positions.lineno is not None:
            found.append(
                (
                    translator.f_code.co_filename,
                    positions.lineno,
                    positions.col_offset or 0,
                    positions.end_lineno or positions.lineno,
                    positions.end_col_offset or 0,
                )
            )
        translator = getattr(translator, "parent", None)
    return tuple(found)


def _translator_codes(translator: Any) -> tuple[tuple[str, str, int], ...]:
    """(qualified name, file, first line) of each function that Dynamo is in, innermost first."""
    found = []
    while translator is not None:
        code = translator.f_code
        found.append((code.co_qualname, code.co_filename, code.co_firstlineno))
        translator = getattr(translator, "parent", None)
    return tuple(found)


def marked_static(tensor: Any) -> bool:
    """Whether the user called `torch._dynamo.mark_static_address` on a tensor."""
    return getattr(tensor, "_dynamo_static_input_type", None) is not None


def static_input(placeholder: Any) -> bool:
    """The same of the tensor that Dynamo passes for a placeholder."""
    return "_dynamo_static_input_type" in placeholder.meta.get("tensor_dict", {})


# What compilers of the AOT stage's graphs ask for.


def debug_assert() -> bool:
    """Whether torch is told to check at run time what its AOT compiler assumed."""
    from torch._functorch import config  # what the user's program sets, whoever compiles

    return bool(config.debug_assert)


def functorch_names() -> tuple[Any, Any, Any]:
    """Torch's settings of ahead-of-time compilation, its graph minifier, its decompositions by context."""
    from torch._functorch import config
    from torch._functorch.fx_minifier import minifier
    from torch._functorch.python_key import pythonkey_decompose

    return config, minifier, pythonkey_decompose


def graph_picture_format() -> str:
    """The kind of file that torch draws graphs to where none is named."""
    from torch._functorch import config

    return str(getattr(config, "torch_compile_graph_format", "svg"))


def dynamo_compiles() -> bool:
    """Whether Dynamo has a frame in work, for which a backend is called."""
    return TracingContext.try_get() is not None


def wants_backward_at_once() -> bool:
    """Whether the user's program asks for each backward to be compiled with its forward."""
    from torch._functorch import config

    return bool(getattr(config, "force_non_lazy_backward_lowering", False))


def functionalizes_rng() -> bool:
    """Whether torch is told to make random numbers functional."""
    from torch._functorch import config

    return bool(config.functionalize_rng_ops)


def draws_as_usual() -> AbstractContextManager[Any]:
    """Within it, torch's gradients of higher-order operators count no draws by themselves."""
    from torch._functorch import config

    return config.patch(functionalize_rng_ops=False) if config.functionalize_rng_ops else nullcontext()


def strip_overloads(module: Any) -> None:
    """Call every operator by its overload packet, as TorchScript wants it."""
    for node in module.graph.nodes:
        if isinstance(node.target, OpOverload):
            node.target = node.target.overloadpacket
    module.recompile()


def optimised_script(module: Any) -> Any:
    """A graph module as an optimised TorchScript module; autocast was applied when the graph was traced."""
    before = torch._C._jit_set_autocast_mode(False)
    try:
        scripted = torch.jit.script(module)
        torch._C._jit_pass_remove_mutation(scripted.graph)
        return torch.jit.optimize_for_inference(torch.jit.freeze(scripted.eval()))
    finally:
        torch._C._jit_set_autocast_mode(before)


def trace_above_autograd(
    run: Callable[[list[Any]], list[Any]], values: list[Any], updated: list[int], fake_mode: FakeTensorMode
) -> Any:
    """A functional graph of `run`, recorded before autograd: new values of `updated` inputs, then results."""
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    def unwrapped(value: Any) -> Any:
        if not isinstance(value, FunctionalTensor):
            return value
        torch._sync(value)  # type: ignore[attr-defined]
        return torch._from_functional_tensor(value.elem)

    def functional(*flat: Any) -> tuple[Any, ...]:
        above = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))
        with above:
            given = [FunctionalTensor.to_functional(v) if isinstance(v, torch.Tensor) else v for v in flat]
            results = run(given)
            return tuple(unwrapped(value) for value in [*(given[at] for at in updated), *results])

    mode = FunctionalTensorMode(pre_dispatch=True, export=True, _allow_token_discovery=True)
    with fake_mode, python_dispatcher({}), mode:
        module = make_fx(functional, pre_dispatch=True, record_module_stack=True)(*values)
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            part.graph.eliminate_dead_code()
            part.recompile()
    return module


def tensor_metadata(val: Any, known: dict[Any, Any]) -> Any:
    """What `meta["tensor_meta"]` holds for a value: shape, dtype, strides and so on of each tensor in it.

    `known` collects the records, which tensors of one kind share: torch asks Python for each memory format.
    """
    from torch.fx.passes.shape_prop import _extract_tensor_metadata  # only for compilers that ask for it

    if isinstance(val, (list, tuple)):
        return type(val)(tensor_metadata(item, known) for item in val)
    if not isinstance(val, torch.Tensor):
        return None
    if val.layout is not torch.strided or val.is_quantized:
        return _extract_tensor_metadata(val)
    shape, strides = val.shape, val.stride()
    if any(type(number) is not int for number in (*shape, *strides)):
        return _extract_tensor_metadata(val)
    key = (shape, strides, val.dtype, val.requires_grad)
    if key not in known:
        known[key] = _extract_tensor_metadata(val)
    return known[key]


def set_joint_signature(
    module: Any, primals: int, tangents: int, results: tuple[int, int], states: list[str]
) -> None:
    """Let a flat joint graph be called as `module(primals, tangents, *states)`.

    It gives results and gradients, of which there are as many as the pair `results` says.
    """
    from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

    arguments = pytree.tree_structure(([0] * primals, [0] * tangents, *[0] * len(states)))
    given = pytree.tree_structure(([0] * results[0], [0] * results[1]))
    names = ["primals", "tangents", *states]
    module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(names, arguments, given)))
    module.recompile()


# Inductor on a graph.


def inductor_decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions that Inductor's lowerings expect."""
    import torch._inductor.lowering  # noqa: F401 (some decompositions look for it without importing it)
    from torch._inductor.decomposition import select_decomp_table  # 3 s to import: only for this backend

    return dict(select_decomp_table())


def inductor_config_patch(config: dict[str, Any]) -> Any:
    """A context in which Inductor is configured as the user asked; a wrong name raises AttributeError."""
    from torch._inductor import config as inductor_config

    asked = {key.replace("-", "_"): value for key, value in config.items()}
    return inductor_config.patch({"trace.provenance_tracking_level": 2, **asked})


def draws_in_kernels(config: dict[str, Any]) -> bool:
    """Whether Inductor, configured so, draws random numbers in its own kernels instead of calling torch."""
    from torch._inductor import config as inductor_config

    with inductor_config_patch(config):
        return not inductor_config.fallback_random


@contextmanager
def _accepting_constants(fake_mode: FakeTensorMode) -> Iterator[None]:
    """Let the graph's real constants meet fake tensors, which Dynamo's mode forbids."""
    before, fake_mode.allow_non_fake_inputs = fake_mode.allow_non_fake_inputs, True
    try:
        yield
    finally:
        fake_mode.allow_non_fake_inputs = before


OWN_LOWERINGS = (
    "a view's start, a mask's draw, draws and effects in order, the nodes of each kernel, a launch's name"
)
"""What is done with Inductor's code here: it keeps what it made of a graph, and finds it by this too."""


@contextmanager
def _own_lowerings() -> Iterator[None]:
    """Let Inductor know where a view starts, and call the draw of a mask as a function.

    The draw gives a new tensor, in eager's layout.
    On a CPU it lowers it to a write into memory that it fills first, and may fuse the filling with what reads
    the mask, which then sees no draw; and numbers are drawn in the order of the memory.
    """
    from torch._inductor import lowering

    draw, start = torch.ops.aten.bernoulli.p, torch.ops.aten.sym_storage_offset.default
    before, effects = lowering.lowerings[draw], lowering.lowerings[with_effects]
    lowering.lowerings[with_effects] = partial(_effects_in_order, effects)
    lowering.lowerings[start] = _start_of_a_view
    lowering.lowerings[draw] = lowering.fallback_handler(draw, add_to_fallback_set=False)
    lowering.add_layout_constraint(draw, lowering.constrain_to_fx_strides)
    try:
        yield
    finally:
        lowering.lowerings[draw], lowering.lowerings[with_effects] = before, effects
        del lowering.lowerings[start]
        lowering._maybe_layout_constraints.pop(draw)


def _effects_in_order(lower: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Inductor's lowering of an effect, which notes what comes before it by the name of a buffer, and looks
    for it by the name of the operation.

    What a torchbind object is given or gives is memory that it may keep.
    """
    from torch._inductor.virtualized import V

    graph: Any = V.graph
    first = len(graph.operations)
    result = lower(*args, **kwargs)
    for operation in graph.operations[first:]:
        noted = graph.additional_star_deps[operation.get_name()]
        graph.additional_star_deps[operation.get_operation_name()] |= noted
        if args[1] is torch.ops.higher_order.call_torchbind or _takes_object(args):
            graph.never_reuse_buffers |= {operation.get_name(), *operation.get_read_names()}
    return result


def _takes_object(args: tuple[Any, ...]) -> bool:
    from torch._inductor.ir import TorchBindObject

    return any(isinstance(arg, TorchBindObject) for arg in args)


@contextmanager
def _launches_named(inputs: list[Any]) -> Iterator[None]:
    """Let Inductor write down which nodes every launch of a Triton kernel computes.

    It does so by the kernel's name, and gives none of a reduction along both axes: then it is the kernel that
    was defined just before.
    """
    if not any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in inputs):
        yield
        return
    from torch._inductor.codegen.triton import TritonScheduling

    scheduling: Any = TritonScheduling
    define, comment = scheduling.define_kernel, scheduling.codegen_comment
    defined: list[str] = []

    def define_and_note(self: Any, *args: Any, **kwargs: Any) -> Any:
        defined.append(define(self, *args, **kwargs))
        return defined[-1]

    def comment_with_name(self: Any, node_schedule: Any, kernel_name: Any = None) -> None:
        comment(self, node_schedule, kernel_name or (defined[-1] if defined else None))

    scheduling.define_kernel, scheduling.codegen_comment = define_and_note, comment_with_name
    try:
        yield
    finally:
        scheduling.define_kernel, scheduling.codegen_comment = define, comment


@contextmanager
def _draws_in_order() -> Iterator[None]:
    """Keep calls that draw from a generator in the graph's order.

    Inductor knows of no order between them, and moves them with what reads them, or for the sake of memory.
    """
    from torch._inductor.scheduler import Scheduler
    from torch._inductor.virtualized import V

    scheduler: Any = Scheduler
    before = scheduler.compute_dependencies

    def with_order(self: Any) -> None:
        draws = [node for node in self.nodes if _draws(getattr(node.node, "op_overload", None))]
        for earlier, later in pairwise(draws):
            V.graph.additional_buffer_deps[later.get_name()].add(earlier.get_outputs()[0].get_name())
        before(self)

    scheduler.compute_dependencies = with_order
    try:
        yield
    finally:
        scheduler.compute_dependencies = before


def _draws(op: Any) -> bool:
    return isinstance(op, OpOverload) and torch.Tag.nondeterministic_seeded in op.tags


def _start_of_a_view(view: Any) -> Any:
    """Where in memory a view starts: Inductor's code for it gives 0 where that is a symbol."""
    from torch._inductor.virtualized import V

    value = V.graph.current_node.meta["val"]
    return value.node.expr if isinstance(value, torch.SymInt) else int(value)


def _write_keywords_in_kernels() -> None:
    """As `write_keywords_as_names`, in Inductor's text."""
    from torch._inductor import ir

    kind: Any = ir.ExternKernel
    named = kind.set_python_kernel_name
    if hasattr(named, "writes_keywords"):
        return

    def set_name(self: Any, name: str | None) -> None:
        named(self, name)
        if self.python_kernel_name:
            self.python_kernel_name = attribute_text(self.python_kernel_name)

    set_name.writes_keywords = True  # type: ignore[attr-defined]
    kind.set_python_kernel_name = set_name


def compile_with_inductor(
    module: Any, inputs: list[Any], fake_mode: FakeTensorMode, **flags: Any
) -> tuple[Any, dict[str, Any]]:
    """Inductor's code for one graph after the AOT stage, and which nodes went into which kernel.

    The code is a boxed callable with `source_code`; the second result is by `kernel:call number`.
    """
    from torch._inductor import config as inductor_config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.debug import create_kernel_information_json, reset_provenance_globals
    from torch._inductor.fx_passes.replace_random import replace_random_passes
    from torch._inductor.virtualized import V

    _write_keywords_in_kernels()
    target = _some_triton_target() if pretends_gpu() else nullcontext()
    with (
        target,
        without_autocast(),
        V.set_fake_mode(fake_mode),
        _accepting_constants(fake_mode),
        _own_lowerings(),
        _launches_named(inputs),
        _draws_in_order(),
        reset_provenance_globals(),
    ):
        if not inductor_config.fallback_random:
            for inner in module.modules():  # functions of higher-order operators draw too
                if isinstance(inner, torch.fx.GraphModule):
                    replace_random_passes(inner)
        code = compile_fx_inner(module, inputs, **flags)
        calls = create_kernel_information_json()
    return code, calls or _calls_kept_with(code)


def _calls_kept_with(code: Any) -> dict[str, Any]:
    """Which nodes went into which kernel of code that Inductor has found in its own cache."""
    kept = json.loads(getattr(code, "inductor_provenance_mapping_str", None) or "{}")
    return {call: {"post_grad_nodes": nodes} for call, nodes in kept.get("cppCodeToPost", {}).items()}


def vector_bits() -> int:
    """Width of the vectors that Inductor's C++ kernels use on this machine's CPU."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    return int(pick_vec_isa().bit_width())


CPU_KERNEL_SETTINGS = (
    "cpp.enable_floating_point_contract_flag",
    "cpp.enable_unsafe_math_opt_flag",
    "cpp.march",
    "cpp.simdlen",
)
"""What Inductor reads when it has a C++ kernel compiled, and a kernel's numbers or vectors depend on."""

NOT_WRITTEN = ("cpp_wrapper", "fx_wrapper")
"""Settings under which Inductor's code is not all in the Python text that it gives."""

GPU_KERNEL_SETTINGS = ("emulate_precision_casts", "eager_numerics.use_pytorch_libdevice")
"""The same of a Triton kernel; torch reads them in processes of its own, where no text can set them."""


def kernel_settings(names: tuple[str, ...]) -> dict[str, Any]:
    """Those of the settings that this torch has, as they are."""
    from torch._inductor import config

    every = config.get_config_copy()
    return {name: every[name] for name in names if name in every}


def run_joint_passes(module: Any, fake_mode: FakeTensorMode, config: dict[str, Any]) -> None:
    """Let Inductor's passes change a joint graph, as `torch.compile` does before it divides the graph.

    Draws of random numbers stay as they are: they are rewritten in each of the two graphs.
    """
    from torch._inductor import config as inductor_config
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.virtualized import V

    values = [node.meta.get("val") for node in module.graph.nodes]
    device = next((value.device for value in values if isinstance(value, torch.Tensor)), None)
    with inductor_config_patch(config), inductor_config.patch(fallback_random=True, **_unmeasured()):
        if inductor_config.use_joint_graph_passes:
            with (
                without_autocast(),
                V.set_fake_mode(fake_mode),
                _accepting_constants(fake_mode),
                tracing(TracingContext(fake_mode)),
                _asking_cpu(module) if pretends_gpu() else nullcontext(),
            ):
                joint_graph_passes(module, device)


def _unmeasured() -> dict[str, Any]:
    """Settings without which a pass would run operators on a GPU that is not there, to time them."""
    return {"shape_padding": False} if pretends_gpu() else {}


@contextmanager
def _asking_cpu(module: Any) -> Iterator[None]:
    """Within it, nodes ask for the CPU, not for a GPU that is not there: constants fold by running them."""
    _set_devices(module, "cuda", _CPU)
    try:
        yield
    finally:
        _set_devices(module, "cpu", torch.device("cuda", 0))


def _set_devices(module: Any, before: str, after: torch.device) -> None:
    for node in module.graph.nodes:
        device, value = node.kwargs.get("device"), node.meta.get("val")
        on_gpu = isinstance(value, torch.Tensor) and value.device.type == "cuda"
        if on_gpu and device is not None and device.type == before:
            node.kwargs = {**node.kwargs, "device": after}


def names_of_generated(code: Any) -> dict[str, Any] | None:
    """What is known in the module that Inductor generated for a graph; None where it generated none."""
    runner = getattr(code, "compiled_fn_runner", None)
    call = runner.call if runner is not None else getattr(code, "current_callable", None)
    names = getattr(getattr(call, "__func__", call), "__globals__", None)
    return names if names is not None and "async_compile" not in names and "call" in names else None


def recording_flags() -> dict[str, Any]:
    """What Inductor's forward and backward of one target share, so that both are recorded or neither."""
    from torch._inductor import config as inductor_config
    from torch._inductor.cudagraph_utils import BoxedDeviceIndex
    from torch._inductor.utils import BoxedBool

    return {
        "cudagraphs": BoxedBool(inductor_config.triton.cudagraphs),
        "boxed_forward_device_index": BoxedDeviceIndex(None),
    }


@contextmanager
def choices_handled_by(take: Callable[[list[Any]], list[Any]]) -> Iterator[None]:
    """Within it `take` says which choices of a kernel Inductor times to find the fastest."""
    from torch._inductor.select_algorithm import add_preprocessing_fn, get_algorithm_selector_cache

    known = get_algorithm_selector_cache().preprocessing_fns
    add_preprocessing_fn(take)
    try:
        yield
    finally:
        known.remove(take)


# What Inductor made, kept between processes.


def pickled_inductor_code(code: Any) -> bytes:
    """What Inductor made of a graph, as its own cache writes it: without what is loaded.

    Raises:
        TypeError, AttributeError, pickle.PicklingError: it holds what cannot be written.
    """
    import copy
    import pickle

    written = copy.copy(code)
    written.prepare_for_serialization()
    return pickle.dumps(written)


def loaded_inductor_code(pickled: bytes) -> Any:
    """The other way round; runs what the bytes say, so they must be this user's own.

    Raises OSError where Inductor's folder for files cannot be written.
    """
    import pickle

    from torch._inductor.codecache import FxGraphCache
    from torch._inductor.output_code import CompiledFxGraphConstants

    code = pickle.loads(pickled)
    constants = CompiledFxGraphConstants()
    found, _ = FxGraphCache.cache_hit_post_compile(code, {}, constants)
    if found is None:
        raise OSError("Inductor cannot load what it generated")
    found.post_compile([], constants, found.fx_kwargs)
    return found


@contextmanager
def kernels_from(find: Callable[[list[str], str], str | None]) -> Iterator[None]:
    """Within it the text that Inductor generated takes a C++ kernel from the file that `find` names.

    `find` is given the kernel's argument types and its text; where it gives None the kernel is compiled.
    Inductor itself would first try out what the compiler and the processor can do, which takes seconds.
    """
    from torch._inductor.async_compile import AsyncCompile
    from torch._inductor.codecache import CppPythonBindingsCodeCache

    compile_kernel = AsyncCompile.cpp_pybinding

    def cpp_pybinding(self: Any, argtypes: list[str], source_code: str) -> Any:
        path = find(argtypes, source_code)
        if path is None:
            return compile_kernel(self, argtypes, source_code)
        library: Any = CppPythonBindingsCodeCache._load_library(path, os.path.basename(path).split(".")[0])
        return library.kernel

    AsyncCompile.cpp_pybinding = cpp_pybinding
    try:
        yield
    finally:
        AsyncCompile.cpp_pybinding = compile_kernel


def inductor_folder() -> str:
    """Where Inductor puts what it compiles."""
    from torch._inductor.codecache import cache_dir

    return str(cache_dir())


def inductor_rules_of_others() -> list[tuple[str, str | None]]:
    """Operators whose decomposition or lowering somebody else than torch has registered with Inductor.

    Each with the file that defines the rule; None where no file does.
    """
    found = []
    for module, table in (("decomposition", "decompositions"), ("lowering", "lowerings")):
        loaded = sys.modules.get(f"torch._inductor.{module}")  # where nobody loaded it, nobody added to it
        rules: dict[Any, Any] = getattr(loaded, table, {})
        found += [(str(op), _file_of(rule)) for op, rule in rules.items() if not _is_of_torch(rule)]
    return found


def _file_of(rule: Any) -> str | None:
    code = getattr(inspect.unwrap(getattr(rule, "func", rule)), "__code__", None)
    return None if code is None else str(code.co_filename)


def _is_of_torch(rule: Any) -> bool:
    name = getattr(inspect.unwrap(getattr(rule, "func", rule)), "__module__", None)
    return name is None or name.split(".")[0] in ("torch", "functools")


def inductor_settings() -> dict[str, Any]:
    """Every setting of Inductor's that its code depends on, by name, with the passes that a user added."""
    from torch._inductor import config

    settings: dict[str, Any] = config.save_config_portable(ignore_private_configs=False)
    names = ("pre_grad", "joint", "post_grad")
    passes = [name for name in dir(config) if "custom" in name and name.startswith(names)]
    return settings | {name: getattr(config, name) for name in passes}


# Code for a GPU, there or not.

HELD_CYCLES, HELD_CYCLES_PER_CALL = 2_000_000, 100_000
"""About a millisecond, and 50 microseconds for each call: more than a process takes to launch and mark it."""


def hold_gpu(calls: int) -> None:
    """Keep the current stream busy, so that as many calls as are launched next wait in its queue."""
    torch.cuda._sleep(HELD_CYCLES + calls * HELD_CYCLES_PER_CALL)


@contextmanager
def accelerators_unasked() -> Iterator[None]:
    """Within it torch finds no GPU and does not look for one.

    To look starts CUDA's driver, also where nothing is done with it, and a forked child cannot use it then.
    Every fake mode and every frame of Dynamo's looks.  Public functions stay, since Dynamo knows them by
    their identity.
    """
    from torch._dynamo import device_interface

    answers: tuple[tuple[Any, str, Any], ...] = (
        (torch._C, "_cuda_getDeviceCount", lambda: 0),
        (torch._C, "_ensureCUDADeviceGuardSet", lambda: None),  # counts them too
        (torch.cuda, "_nvml_based_avail", lambda: False),  # asks another library, which tells of GPUs
    )
    instead = [row for row in answers if hasattr(row[0], row[1])]  # a build for the CPU lacks the first
    before = [(owner, name, getattr(owner, name)) for owner, name, _ in instead]
    for owner, name, answer in instead:
        setattr(owner, name, answer)
    try:
        yield
    finally:
        for owner, name, answer in before:
            setattr(owner, name, answer)
        device_interface.device_interfaces.clear()  # they were counted; who asks next counts again
        device_interface._device_initialized = False


def forked_after_cuda() -> bool:
    """Whether a parent of this process has started CUDA, which a forked child cannot use then."""
    return bool(torch.cuda._is_in_bad_fork())


def compiling_modules() -> SimpleNamespace:
    """Torch's modules that ask about the GPU while Inductor generates code for one.

    Imported as a whole, so that what is imported later never sees a machine that is only pretended.
    """
    import torch._inductor.compile_fx
    import torch._inductor.select_algorithm  # imports the templates, which look at the device once
    from torch._dynamo import device_interface
    from torch._inductor import async_compile, codecache, config, debug, graph, ir, scheduler
    from torch._inductor.codegen import cpp as cpp_codegen
    from torch._inductor.codegen import triton as triton_codegen
    from torch._inductor.runtime import triton_heuristics
    from torch._inductor.virtualized import V

    return SimpleNamespace(
        c=torch._C,
        carried_metadata=torch.fx.proxy._COPY_META_FIELDS,
        device_interface=device_interface,
        config=config,
        async_compile=async_compile,
        codecache=codecache,
        debug=debug,
        ir=ir,
        scheduler=scheduler,
        v=V,
        cpp_codegen=cpp_codegen,
        triton_codegen=triton_codegen,
        heuristics=triton_heuristics,
        libraries=os.path.join(os.path.dirname(torch.__file__), "lib"),
        graph_lowering=graph.GraphLowering,
        constant_that_stays=_constant_that_stays,
    )


def use_torchs_tools_for_triton() -> None:
    """Let Triton compile with the assembler and the library of functions that Inductor has it take."""
    from torch._inductor import async_compile

    async_compile._set_triton_ptxas_path()
    take_library = getattr(async_compile, "_set_triton_libdevice_path", None)  # from 2.12 on
    if take_library is not None:
        take_library()


def _constant_that_stays(self: Any, name: str, device: torch.device | None) -> str:
    """In the place of `GraphLowering.constant_name`: the constant that is on the device, its values here."""
    if device is None:
        return name
    place = f"_{device.type}{device.index or 0}"
    if name.endswith(place) or name + place in self.constants:
        return name.removesuffix(place) + place
    with _disable_current_modes():
        return str(self.allocate_non_dup_const_name(name + place, self.constants[name].clone()))


def interpreting_modules() -> SimpleNamespace:
    """Torch's modules under which a wrapper of Inductor's runs, its kernels in Triton's interpreter."""
    import torch._prims.rng_prims  # registers operators that wrappers call
    from torch._inductor import codecache
    from torch._inductor.runtime import hints, triton_helpers, triton_heuristics

    return SimpleNamespace(
        c=torch._C,
        guards=torch._C._dynamo.guards,
        helpers=triton_helpers,
        autotuner=triton_heuristics.CachingAutotuner,
        heuristics=triton_heuristics,
        largest_blocks=hints.TRITON_MAX_BLOCK,
        codecache=codecache,
    )


# Fake tensors of a GPU that is not there.

_CPU = torch.device("cpu")

_fakes: Any = SimpleNamespace(have_no_gpu=False, to_cpu=False, asked_last=None)
"""What `missing_gpu_replacements` turns on."""


def pretends_gpu() -> bool:
    """Whether fake tensors may be on a GPU that is not there, as `missing_gpu_replacements` has it."""
    return bool(_fakes.have_no_gpu)


def setting_up_optimizers_in(mode: TorchDispatchMode) -> Iterator[tuple[Any, str, Any, str]]:
    """What has Dynamo make the state of an optimizer in a mode: owner, name, new value, reason."""
    from torch._dynamo import utils  # seconds to import
    from torch._dynamo.variables import optimizer

    call: Any = optimizer.OptimizerVariable.call_method

    def call_method(self: Any, tx: Any, name: str, *rest: Any) -> Any:
        with mode if name == "_init_group" else nullcontext():
            return call(self, tx, name, *rest)

    def is_static(tensor: Any) -> bool:
        return utils.get_static_address_type(tensor) is not None

    why = "Dynamo runs this part of the script itself, with all modes off"
    yield optimizer.OptimizerVariable, "call_method", call_method, why
    yield optimizer, "_is_static_for_cudagraphs", is_static, "would load what records CUDA graphs"


def device_for_autograd(fake: Any) -> torch.device:
    """What a fake tensor's device is to torch's C++: autograd cannot go to a GPU that is not there."""
    device: torch.device = fake.fake_device
    _fakes.asked_last = device
    return _CPU if _fakes.have_no_gpu and device.type == "cuda" else device


@contextmanager
def transfer_to_cpu() -> Iterator[None]:
    """Within it, `device="cpu"` means it, for fake tensors of a GPU that is not there."""
    _fakes.to_cpu = True
    try:
        yield
    finally:
        _fakes.to_cpu = False


def with_true_device(args: Any, kwargs: Any) -> Any:
    """An operator's keyword arguments, with the device of the tensor from which C++ takes it.

    That is an argument; for an operator that makes a tensor, the one whose options were read just before.
    """
    device = kwargs.get("device")
    if device is None or not _fakes.have_no_gpu or _fakes.to_cpu or device.type != "cpu":
        return kwargs
    found = [leaf.fake_device for leaf in pytree.tree_leaves(args) if isinstance(leaf, FakeTensor)]
    if not found and kwargs.get("layout") is not None and _fakes.asked_last is not None:
        found = [_fakes.asked_last]  # Python gives no layout
    return {**kwargs, "device": next((one for one in found if one.type == "cuda"), device)}


def missing_gpu_replacements() -> Iterator[tuple[Any, str, Any, str]]:
    """What makes fake CUDA tensors fit for a backward where there is no GPU: owner, name, new value, reason.

    To Python and to the dispatcher such a tensor is on the GPU; autograd's C++ is told `cpu`, since its
    engine refuses a device that is not there (and ends the process in a build without CUDA).
    """
    module: Any = sys.modules[FakeTensorMode.__module__]
    query = torch.ops.prim.device.default
    dispatch: Any = vars(FakeTensor)["__torch_dispatch__"].__func__
    handlers = module._DISPATCH_META_HANDLERS
    in_kernel = handlers[query]

    def answer(args: Any) -> torch.device:
        return in_kernel(args) if args[0].fake_mode.in_kernel_invocation else device_for_autograd(args[0])

    def dispatched(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return answer(args) if func is query else dispatch(cls, func, types, args, kwargs or {})

    run = FakeTensorMode.dispatch

    def dispatched_in(self: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        return run(self, func, types, args, with_true_device(args, kwargs or {}))

    why = "autograd's C++ gets the device `cpu`"
    yield FakeTensorMode, "dispatch", dispatched_in, "and would make what it derives from that on the CPU"
    yield _fakes, "have_no_gpu", True, why
    yield FakeTensor, "__torch_dispatch__", classmethod(dispatched), why
    yield module, "_DISPATCH_META_HANDLERS", {**handlers, query: answer}, why
    merge = FakeTensor._find_common_device

    def common_device(func: Any, flat_args: Any) -> tuple[torch.device, bool]:
        devices = [arg.device for arg in flat_args if isinstance(arg, FakeTensor)]
        gpu = next((device for device in devices if device.type == "cuda"), None)
        if gpu is None or all(device == gpu for device in devices):
            return merge(func, flat_args)
        return gpu, False

    yield (
        FakeTensor,
        "_find_common_device",
        staticmethod(common_device),
        "C++ that asks for the device makes CPU tensors, which meet those on the GPU",
    )
    yield from fakes_without_devices()


def fakes_without_devices() -> Iterator[tuple[Any, str, Any, str]]:
    """What keeps fake CUDA tensors from looking for their device: owner, name, new value, reason."""
    module: Any = sys.modules[FakeTensorMode.__module__]
    why = "fake CUDA tensors would initialise the device that is said to be available"
    yield FakeTensorMode, "avoid_device_init", property(lambda mode: True), why
    yield module, "init_gpu_context", lambda device: None, "before 2.12 a real tensor is made on it"
    yield from _convolutions_as_by_cudnn()


def _convolutions_as_by_cudnn() -> Iterator[tuple[Any, str, Any, str]]:
    """In which layout fake convolutions on CUDA give their results, as rows: in cuDNN's, for which
    `channels_last` of the input or of the weight is that of all."""
    c: Any = torch._C
    select, determine = c._select_conv_backend, c._conv_determine_backend_memory_format
    backends = c._ConvBackend

    def selected(value: Any, weight: Any, *args: Any, **kwargs: Any) -> Any:
        taken = value.device.type == "cuda" and value.numel() > 0 and c._get_cudnn_enabled()
        return backends.Cudnn if taken else select(value, weight, *args, **kwargs)

    def determined(value: Any, weight: Any, backend: Any) -> Any:
        if value.device.type != "cuda" or backend != backends.Cudnn:
            return determine(value, weight, backend)
        return _layout_of_cudnn(value, weight)

    yield c, "_select_conv_backend", selected, "a build without cuDNN selects kernels of its own"
    yield c, "_conv_determine_backend_memory_format", determined, "their results are contiguous"


def _layout_of_cudnn(value: torch.Tensor, weight: torch.Tensor) -> torch.memory_format:
    layouts = {suggest_memory_format(value), suggest_memory_format(weight)} - {torch.contiguous_format}
    if torch.float64 in (value.dtype, weight.dtype) or not layouts:
        return torch.contiguous_format
    return layouts.pop()


def refusing_fakes() -> Iterator[tuple[Any, str, Any, str]]:
    """What refuses fake CUDA tensors: owner, name, new value, reason."""
    module: Any = sys.modules[FakeTensorMode.__module__]
    initialise = module.init_gpu_context

    def refused(device: torch.device) -> None:
        if device.type == "cuda":
            raise AssertionError("Torch not compiled with CUDA enabled")  # as it says of real ones
        initialise(device)

    why = "one that requires grad ends the process where no GPU is"
    yield module, "init_gpu_context", refused, why


@contextmanager
def made_on_cpu_first() -> Iterator[None]:
    """Let `torch.tensor(…, device=…)` make a CPU tensor and copy it, which modes see, in place of making one
    on the device, which they do not."""
    before = torch._C._only_lift_cpu_tensors()
    torch._C._set_only_lift_cpu_tensors(True)
    try:
        yield
    finally:
        torch._C._set_only_lift_cpu_tensors(before)
