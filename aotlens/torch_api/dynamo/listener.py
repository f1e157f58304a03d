"""Callbacks for what Dynamo does, while something is compiled.

A call that finds its compiled code runs none of them.
"""

import re
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from types import CodeType
from typing import Any

from aotlens.torch_api.dynamo.events import (
    LOSSES,
    DynamoConstant,
    DynamoGraph,
    DynamoGuards,
    DynamoListener,
    DynamoRecompile,
    Frames,
    GuardMiss,
    log_exceptions,
)
from aotlens.torch_api.dynamo.frames import (
    current_compile,
    current_translator,
    frame_with_columns,
    frames_above_dynamo,
    loss_at,
    skip_reason,
    source_name,
    traced_frames,
    translators,
)
from aotlens.torch_api.dynamo.state import hide_from_dynamo, skip_frame_in_dynamo
from aotlens.torch_api.patches.scopes import Patch, around, complete, handled
from aotlens.torch_api.patches.targets import Attribute

__all__ = ["DYNAMO_EVENTS", "HOOKS", "is_wrapper"]


Original = Callable[..., Any]
"""What torch's name was bound to."""
_COMPILED_GRAPH = "__compiled_fn"
"""How the global begins under which a function that Dynamo wrote finds a compiled graph."""


@handled
def _on_break(  # noqa: PLR0913 (torch's signature)
    listener: DynamoListener,
    original: Original,
    self: Any,
    code_options: Any,
    reason: str,
    exc: Any,
) -> None:
    if not exc.logged:
        with log_exceptions():
            listener.loses(loss_at(self.output.root_tx.f_code, exc, reason, self))
    original(self, code_options, reason, exc)


@handled
def _on_line(listener: DynamoListener, original: Original, self: Any, line: int) -> None:
    original(self, line)
    with log_exceptions():
        depth = getattr(self, "inline_depth", 0)
        listener.starts_line(self.f_code, depth, _traced_lines(self))


def _traced_lines(innermost: Any) -> Iterator[tuple[str, int]]:
    for translator in translators(innermost):
        yield translator.f_code.co_filename, translator.lineno or translator.f_code.co_firstlineno


@handled
def _on_frame(
    listener: DynamoListener, original: Original, self: Any, frame: Any, *args: Any, **kwargs: Any
) -> Any:
    code = frame.f_code
    with log_exceptions():
        listener.frame_begins(code, _wrapped(frame))
    try:
        return original(self, frame, *args, **kwargs)
    except Exception as error:
        if type(error).__name__ in LOSSES and not getattr(error, "logged", False):
            is_error = bool(getattr(self, "_one_graph", False))
            with log_exceptions():
                listener.loses(loss_at(code, error, None, None)._replace(is_error=is_error))
        raise
    finally:
        with log_exceptions():
            listener.frame_ends(code)


def is_wrapper(code: CodeType) -> bool:
    """Whether the function is Dynamo's own, around a function or module that it cannot enter directly."""
    return code.co_filename.endswith("external_utils.py")


def _wrapped(frame: Any) -> Any:
    """What a wrapper calls; None for other functions."""
    return frame.f_locals.get("fn") if is_wrapper(frame.f_code) else None


def _wrapped_call(frame: Any) -> tuple[Any, Frames] | None:
    """What a wrapper calls, and from where; None for other functions."""
    wrapped = _wrapped(frame)
    return None if wrapped is None else (wrapped, frames_above_dynamo())


@handled
def _on_skip(listener: DynamoListener, original: Original, self: Any, result: Any, frame: Any) -> Any:
    if result.skip_reason is not None and result.guarded_code is None:
        with log_exceptions():
            listener.skips(frame.f_code, str(result.skip_reason), _wrapped_call(frame))
    return original(self, result, frame)


@handled
def _on_unreported_skip(
    listener: DynamoListener, original: Original, self: Any, frame: Any, *args: Any, **kwargs: Any
) -> Any:
    if not hasattr(self, "_handle_skip"):
        with log_exceptions():
            reason = skip_reason(self, frame)
            if reason:
                listener.skips(frame.f_code, reason, _wrapped_call(frame))
    return original(self, frame, *args, **kwargs)


@handled
def _on_recompile(
    listener: DynamoListener, original: Original, entries: Any, frame: Any, *args: Any, **kwargs: Any
) -> Any:
    reasons = original(entries, frame, *args, **kwargs)
    with log_exceptions():
        misses = tuple(_misses(entries, reasons, frame))
        scope = {"L": frame.f_locals, "G": frame.f_globals}
        above = frames_above_dynamo()
        listener.recompiles(DynamoRecompile(frame.f_code, current_compile(), misses, scope, above))
    return reasons


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


@handled
def _on_replacement(  # noqa: PLR0913 (torch's signature)
    listener: DynamoListener,
    original: Original,
    self: Any,
    symbol: Any,
    value: Any,
    reason: str,
    *args: Any,
) -> None:
    before = self.replacements.get(symbol)
    original(self, symbol, value, reason, *args)
    if before == value or self.replacements.get(symbol) != value or not value.is_number:
        return
    with log_exceptions():
        root, frames = traced_frames()
        sources = tuple(source_name(source) for source in self.var_to_sources.get(symbol, ()))
        if root is not None and sources:
            number = int(value) if value.is_integer else float(value)
            listener.makes_constant(DynamoConstant(root, sources, number, str(symbol), reason, frames))


@handled
def _on_symbol(
    listener: DynamoListener, original: Original, self: Any, val: Any, source: Any, *args: Any, **kwargs: Any
) -> Any:
    made = original(self, val, source, *args, **kwargs)
    dim = kwargs.get("dynamic_dim", args[0] if args else None)
    if type(val) is int and val in (0, 1) and made.is_number and getattr(dim, "name", "") != "STATIC":
        with log_exceptions():
            root, frames = traced_frames()
            name = source_name(source)
            if root is not None and "storage_offset" not in name:  # 0 almost always, and no size
                listener.makes_constant(DynamoConstant(root, (name,), val, "", "0/1", frames))
    return made


@handled
def _on_size_guard(
    listener: DynamoListener,
    original: Original,
    self: Any,
    prefix: str,
    guard: Any,
    *args: Any,
    **kwargs: Any,
) -> None:
    original(self, prefix, guard, *args, **kwargs)
    with log_exceptions():
        root, frames = traced_frames()
        if root is not None:
            # `s12`: `L['x'].size()[0]`
            names = {str(symbol): name for name, symbol in self.source_to_var.items()}
            text = re.sub(r"\b[su]\d+\b", lambda match: names.get(match[0], match[0]), str(guard))
            listener.guards_size(text, frames)


@handled
def _on_guards(listener: DynamoListener, before: Any, manager: Any, f_locals: Any, builder: Any) -> None:
    if before is not None:
        before(manager, f_locals, builder)
    with log_exceptions():
        listener.makes_guards(_guards(manager, f_locals, builder))


def _guards(manager: Any, f_locals: Any, builder: Any) -> DynamoGuards:
    graph = builder.check_fn_manager.output_graph
    made = tuple(
        (str(guard.name), " and ".join(guard.code_list or ()), tuple(guard.user_stack or ()))
        for guard in graph.guards
    )
    scope = {"L": f_locals, "G": graph.global_scope}
    check = partial(manager.root.check, f_locals)
    return DynamoGuards(builder.f_code, current_compile(), made, scope, check)


@handled
def _on_phase_start(
    listener: DynamoListener, original: Original, self: Any, event_name: str, *args: Any, **kwargs: Any
) -> None:
    complete(DYNAMO_EVENTS)  # Inductor may have been loaded since the last phase
    original(self, event_name, *args, **kwargs)
    with log_exceptions():
        listener.phase_begins(event_name, current_compile())


@handled
def _on_phase_end(
    listener: DynamoListener, original: Original, self: Any, event_name: str, *args: Any, **kwargs: Any
) -> None:
    with log_exceptions():
        listener.phase_ends(event_name)
    original(self, event_name, *args, **kwargs)


@handled
def _on_global(listener: DynamoListener, original: Original, self: Any, name: str, value: Any) -> None:
    """Put a function that reports the first run in place of a compiled graph, until that run."""
    if not name.startswith(_COMPILED_GRAPH) or self.root_tx is None:
        original(self, name, value)
        return
    reason = self.compile_subgraph_reason
    graph = DynamoGraph(self.root_tx.f_code, current_compile(), bool(reason and reason.graph_break))
    scope = self.global_scope
    on_run: Callable[[], None] | None = None
    with log_exceptions():
        on_run = listener.on_run
        listener.captures(graph, tuple(self.graph.nodes))

    def first(*args: Any, **kwargs: Any) -> Any:
        if not listener.counts_calls and scope.get(name) is hidden:
            scope[name] = value if on_run is None else _counted(value, on_run)
        if on_run is not None:
            on_run()
        done: Callable[[Any], None] | None = None
        outputs = None
        with log_exceptions():
            done = listener.runs(graph, args)
        try:
            outputs = value(*args, **kwargs)
        finally:
            if done is not None:
                with log_exceptions():
                    done(outputs)
        return outputs

    hidden = hide_from_dynamo(first)
    original(self, name, hidden)


def _counted(graph: Callable[..., Any], on_run: Callable[[], None]) -> Callable[..., Any]:
    """Return the graph as a function that calls `on_run` first."""

    def counted(*args: Any, **kwargs: Any) -> Any:
        on_run()
        return graph(*args, **kwargs)

    return skip_frame_in_dynamo(counted)


@around
def _frame_of_translator(original: Original, self: Any) -> Any:
    return frame_with_columns(original(self), self)


@around
def _frame_of_location(original: Original, location: Any) -> Any:
    frame = original(location)
    return frame if frame.colno is not None else frame_with_columns(frame, current_translator())


_SHAPES = "torch.fx.experimental.symbolic_shapes:ShapeEnv"
_FRAMES = "torch._dynamo.convert_frame"
_PHASES = "torch._dynamo.utils:ChromiumEventLogger"
_TRANSLATOR = "torch._dynamo.symbolic_convert:InstructionTranslatorBase"

DYNAMO_EVENTS = "Dynamo events"
"""The scope of these rows."""

HOOKS: tuple[Patch, ...] = (
    Patch(
        Attribute(_TRANSLATOR, "frame_summary"),
        _frame_of_translator,
        "graph breaks and guards are reported with columns (torch has them from 2.13 on)",
    ),
    Patch(
        Attribute("torch._guards:TracingContext", "_populate_loc_in_frame_summary"),
        _frame_of_location,
        "graph breaks and guards are reported with columns (torch has them from 2.13 on)",
        is_optional=True,
    ),
    Patch(Attribute(_TRANSLATOR, "log_graph_break"), _on_break, "graph breaks are reported"),
    Patch(Attribute(_TRANSLATOR, "starts_line"), _on_line, "time per source line is reported"),
    Patch(
        Attribute(f"{_FRAMES}:ConvertFrameAssert", "__call__"),
        _on_frame,
        "each function that Dynamo compiles is reported, and whether it fails",
    ),
    Patch(
        Attribute(f"{_FRAMES}:CatchErrorsWrapper", "_handle_skip"),
        _on_skip,
        "functions that Dynamo skips are reported (from 2.12 on)",
        is_optional=True,
    ),
    Patch(
        Attribute(f"{_FRAMES}:CatchErrorsWrapper", "__call__"),
        _on_unreported_skip,
        "functions that Dynamo skips are reported (up to 2.11)",
    ),
    Patch(
        Attribute(_FRAMES, "get_and_maybe_log_recompilation_reasons"),
        _on_recompile,
        "recompilations are reported, with the guards that failed",
        is_optional=True,
    ),
    Patch(
        Attribute("torch._dynamo.guards", "guard_manager_testing_hook_fn"),
        _on_guards,
        "the guards of each compilation are reported",
    ),
    Patch(Attribute(_SHAPES, "_set_replacement"), _on_replacement, "specialised sizes are reported"),
    Patch(Attribute(_SHAPES, "create_symbol"), _on_symbol, "sizes 0 and 1 are reported: constants"),
    Patch(
        Attribute(_SHAPES, "_log_guard"),
        _on_size_guard,
        "conditions on sizes are reported",
        is_optional=True,
    ),
    Patch(
        Attribute("torch._dynamo.output_graph:OutputGraph", "install_global_unsafe"),
        _on_global,
        "the first run of each compiled graph is reported",
        is_optional=True,
    ),
    Patch(
        Attribute(_PHASES, "log_event_start"),
        _on_phase_start,
        "compile time by phase is reported",
    ),
    Patch(Attribute(_PHASES, "log_event_end"), _on_phase_end, "compile time by phase is reported"),
)
"""Rows of the scope `LISTEN`."""
