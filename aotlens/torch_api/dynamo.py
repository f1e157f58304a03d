"""What Dynamo is told and asked: functions to leave alone, guards, the source of each node."""

from collections.abc import Callable
from typing import Any

from torch._guards import TracingContext


def hide_from_dynamo(function: Callable[..., Any]) -> Callable[..., Any]:
    """The same function, which Dynamo neither traces nor looks into."""
    from torch._dynamo import disable

    return disable(function)


def leave_to_python(function: Any) -> None:
    """Tell Dynamo, and autograd when it is compiled, not to trace a function; costs nothing per call."""
    function._torchdynamo_disable = True


def dynamo_knows(tensor: Any) -> bool:
    """Whether Dynamo has seen the tensor in the frame that it compiles now."""
    context = TracingContext.try_get()
    return context is not None and tensor in context.tensor_to_context


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
