"""What Dynamo compiles now, what it knows of a value, and how code is hidden from it."""

import inspect
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from typing import Any

import torch
from torch._C._dynamo import eval_frame
from torch._guards import CompileContext, TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from aotlens.torch_api.dynamo.frames import translator_codes, translator_positions
from aotlens.torch_api.patches.scopes import around, handled

__all__ = [
    "TracingContext",
    "call_without_events",
    "compile_id",
    "compile_mode_settings",
    "create_proxy",
    "disable_in_dynamo",
    "forecasting_settings",
    "hide_backend_result",
    "hide_from_dynamo",
    "is_default_backend",
    "is_dynamo_compiling",
    "is_dynamo_input",
    "is_opaque_value",
    "is_static_address",
    "is_static_input",
    "keep_hidden",
    "node_at_line",
    "on_dynamo_compilation",
    "resolve_dynamo_source",
    "skip_frame_in_dynamo",
    "specialise_sizes",
    "substitute_while_tracing",
    "tracing",
    "unsupported_frames",
    "wrap_compiled",
]


def resolve_dynamo_source(source: Any) -> Any:
    """Return the value of a Dynamo source in the frame that Dynamo compiles; None where that is unknown."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        return InstructionTranslator.current_tx().output.resolve_source_value(source)
    except (AssertionError, AttributeError, LookupError, RuntimeError, TypeError, ValueError):
        return None


def hide_from_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function in a form that Dynamo neither traces nor enters."""
    from torch._dynamo import disable

    return disable(function)


def skip_frame_in_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return the function itself; Dynamo compiles neither its frames nor those of its callees.

    Unlike `torch.compiler.disable`, this does not load Dynamo.
    """
    skip = eval_frame._FrameAction.SKIP
    code = function.__code__
    eval_frame.set_code_exec_strategy(code, eval_frame._FrameExecStrategy(skip, skip))
    return function


def substitute_while_tracing(function: Callable[..., Any], traced: Callable[..., Any]) -> None:
    """Have Dynamo trace `traced` where it meets a call of `function`, unless it has a rule for that.

    It has one for what has a name of torch's when it reads its list: it passes over `torch.compile`, whatever
    that is by then.  Idempotent.
    """
    from torch._dynamo.trace_rules import get_torch_obj_rule_map

    if function not in get_torch_obj_rule_map():
        torch.compiler.substitute_in_graph(function, skip_signature_check=True)(traced)


def hide_backend_result(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that a backend returns to Dynamo, which then neither traces nor enters it.

    Unlike `hide_from_dynamo`, this costs no Python frame per call, as long as `keep_hidden` is in force.
    """
    disable_in_dynamo(function)
    setattr(function, _HIDDEN, True)
    return skip_frame_in_dynamo(function)


_HIDDEN = "_aotlens_hidden_from_dynamo"


@around
def keep_hidden(original: Callable[..., Any], fn: Any = None, *args: Any, **kwargs: Any) -> Any:
    """Dynamo's `disable`: a function of `hide_backend_result` is hidden already."""
    return fn if hasattr(fn, _HIDDEN) else original(fn, *args, **kwargs)


@around
def call_without_events(original: Callable[..., Any], self: Any, fn_name: str) -> Any:
    """How Dynamo writes the call of a graph: without profiler events around the arguments of a hidden one.

    With them every call of a graph runs ten Python functions more, also while no profiler does.
    """
    from torch._dynamo import config

    is_hidden = hasattr(self.tx.output.global_scope.get(fn_name), _HIDDEN)
    if not is_hidden or torch.autograd.profiler._is_profiler_enabled:
        return original(self, fn_name)
    with config.patch(record_runtime_overhead=False):
        return original(self, fn_name)


def disable_in_dynamo(function: Any) -> None:
    """Mark a function so that Dynamo and compiled autograd do not trace it; costs nothing per call."""
    function._torchdynamo_disable = True


def is_opaque_value(value: Any) -> bool:
    """Return True if Dynamo writes such an object into a graph unchanged: a placement of a distributed
    tensor."""
    try:
        from torch._library.opaque_object import is_opaque_value_type
    except ImportError:  # torch 2.11 writes none
        return False
    return bool(is_opaque_value_type(type(value)))


def compile_id() -> tuple[int, int] | None:
    """Return the frame that Dynamo compiles now, and how often it compiled it before; None outside of
    Dynamo."""
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


def is_dynamo_input(tensor: Any) -> bool:
    """Return True if Dynamo has seen the tensor in the frame that it compiles now.

    Then Dynamo has decided which of its sizes are symbols, and a fake tensor of it must have the same.
    """
    context = TracingContext.try_get()
    return context is not None and tensor in context.tensor_to_context


def specialise_sizes(mode: FakeTensorMode, wrapper: Any, jagged: bool) -> dict[str, Any]:
    """Have Dynamo recompile for a subclass of its frame with other sizes, or with other sizes inside.

    Dynamo rejects this where a size is marked dynamic, as the longest and shortest row of a jagged tensor
    are: these are returned by name, as fake tensors of Dynamo's symbols.  The rows of a view are those of its
    base.
    """
    context, env = TracingContext.try_get(), mode.shape_env
    if context is None or env is None or wrapper not in context.tensor_to_context:
        return {}
    first, marked = context.tensor_to_context[wrapper], {}
    base = first.view_base_context if jagged else None
    inner = getattr(first, "inner_contexts", {})
    for name, known in (("", first), *inner.items(), *((("", base),) if base is not None else ())):
        if jagged and any(
            constraint is not None and not constraint.warn_only for constraint in known.constraint_sizes
        ):
            if name:
                source = known.tensor_source
                marked[name] = mode.from_tensor(getattr(wrapper, name), symbolic_context=known, source=source)
            continue
        for size in known.shape_env_to_source_to_symbol_cache.get(id(env), {}).values():
            if size.is_symbol and size in env.var_to_range:  # a ragged size has none
                env.evaluate_expr(size)
    return marked


@handled
def wrap_compiled(wrap: Callable[[Any, Any], Any], original: Callable[..., Any], self: Any, fn: Any) -> Any:
    """How `torch.compile` makes a function of another: returns `handler(function, compiled)`."""
    from torch._dynamo.eval_frame import OptimizeContext

    compiled = original(self, fn)
    is_wrapper = isinstance(self, OptimizeContext) and inspect.isfunction(compiled)
    return wrap(fn, compiled) if is_wrapper else compiled


def forecasting_settings(is_dynamic: bool) -> AbstractContextManager[Any]:
    """Within it Dynamo compiles a function as often as it must, with symbolic sizes where asked."""
    from torch._dynamo import config

    settings: dict[str, Any] = {"recompile_limit": 64}
    if is_dynamic:  # what `torch.compile(dynamic=True)` sets around its calls
        settings["assume_static_by_default"] = False
    return config.patch(settings)


def unsupported_frames() -> Iterator[tuple[str, int, str, str | None, int | None]]:
    """Yield the functions that Dynamo left in eager, oldest first: file, first line, reason, where it
    stopped.

    Torch remembers the last 64 functions of the process.
    """
    from torch._dynamo.utils import get_compilation_metrics

    for metrics in get_compilation_metrics():
        if metrics.fail_type == "Unsupported":
            location = (metrics.fail_user_frame_filename, metrics.fail_user_frame_lineno)
            yield (
                str(metrics.co_filename),
                int(metrics.co_firstlineno or 0),
                str(metrics.fail_reason),
                location[0],
                location[1],
            )


def is_default_backend(backend: Any) -> bool:
    """Whether `torch.compile(backend=…)` means torch's own compiler, by name or by default."""
    if backend is None:
        from torch._dynamo.backends import registry

        chosen = getattr(registry, "get_default_backend", None)  # from 2.12 on a default can be set
        backend = "inductor" if chosen is None else chosen()
    return isinstance(backend, str) and backend == "inductor"


def compile_mode_settings(mode: str | None, dynamic: bool | None) -> dict[str, Any]:
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


@around
def create_proxy(original: Callable[..., Any], self: Any, *args: Any, **kwargs: Any) -> Any:
    """How Dynamo adds a node to its graph: with the exact source ranges in `meta["aotlens_spans"]`.

    Dynamo's own `stack_trace` is text with line numbers, without the columns of a method chain.
    """
    proxy = original(self, *args, **kwargs)
    node = getattr(proxy, "node", None)
    if node is not None and "aotlens_spans" not in node.meta:
        translator = self.output_graph.current_tx
        node.meta["aotlens_spans"] = translator_positions(translator)
        node.meta["aotlens_codes"] = translator_codes(translator)
    return proxy


def is_static_address(tensor: Any) -> bool:
    """Return True if the user called `torch._dynamo.mark_static_address` on a tensor."""
    return getattr(tensor, "_dynamo_static_input_type", None) is not None


def is_static_input(placeholder: Any) -> bool:
    """Return True if Dynamo passes a tensor with a static address for a placeholder."""
    return "_dynamo_static_input_type" in placeholder.meta.get("tensor_dict", {})


def is_dynamo_compiling() -> bool:
    """Return True while Dynamo compiles a frame, for which it calls a backend."""
    return TracingContext.try_get() is not None
