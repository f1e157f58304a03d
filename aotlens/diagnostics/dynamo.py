"""Family AL4: graph breaks, recompilations, specialised sizes and skipped functions."""

from collections.abc import Iterator

from aotlens.diagnostics.budgets import Budget
from aotlens.diagnostics.rule import Rule
from aotlens.model.dynamo import Break, Dynamo, DynamoFunction
from aotlens.model.eager import NotCompiled
from aotlens.model.report import Diagnostic, Related, Severity
from aotlens.view.quantities import counted, human_bytes, human_ms
from aotlens.view.why import RecompiledValue, recompiled_values, value_hint, value_words

DYNAMO = (
    Rule(
        "AL407",
        "A value that recompiles the function",
        "warning",
        "Dynamo compiled the function for one value, a guard checks that value on each call, and calls with"
        " another value compile the function again. The second size of a dimension and the second value of a"
        " number are no finding: Dynamo then makes them symbols.",
        "The time of each recompilation. After eight of them (`torch._dynamo.config.recompile_limit`) calls"
        " that need another graph run in eager.",
        "The message names the value as you write it, with the old and the new value, and what to do:"
        " a counter belongs into a buffer, a number that changes into a 0-d tensor, a size is announced with"
        " `torch._dynamo.mark_dynamic`.",
        "class Net(nn.Module):\n    step = 0\n\n    def forward(self, x):\n        self.step += 1\n"
        "        return x / self.step",
        "class Net(nn.Module):\n    def __init__(self):\n        super().__init__()\n"
        '        self.register_buffer("step", torch.zeros(()))\n\n    def forward(self, x):\n'
        "        self.step.add_(1)\n        return x / self.step",
    ),
    Rule(
        "AL408",
        "A symbolic size that became a constant",
        "information",
        "The size was a symbol, so that one compilation serves many sizes, until this expression asked"
        " whether it has a certain value. From here on it is that constant.",
        "Calls with another size compile the function again.",
        "Ask for a range (`x.shape[0] >= 2`), or move the test out of the compiled function. Other sizes may"
        " still vary.",
        "@torch.compile(dynamic=True)\ndef pad(x):\n    if x.shape[0] == 5:\n        return x\n"
        "    return torch.cat([x, x])",
    ),
    Rule(
        "AL409",
        "A function that Dynamo skips",
        "warning",
        "Dynamo looked at the function and left it to Python, without a graph break to say so: tracing is"
        " switched off for it, a dispatch mode is active, or its file is on Dynamo's list of code to skip.",
        "Everything in it runs in eager.",
        "The message has the reason. Functions without any tensor are skipped too, and are no finding.",
        "with MyDispatchMode():\n    compiled(x)",
        "compiled(x)",
    ),
)


__all__ = ["LARGE_CROSSING_BYTES", "dynamo_findings", "is_graph_break", "over_dynamo_budget"]

LARGE_CROSSING_BYTES = 1 << 20
"""From which on a graph break is a warning: these bytes are written and read again on each call."""


def is_graph_break(record: NotCompiled) -> bool:
    """Whether the record is of a single expression, which `dynamo_findings` reports with more facts."""
    return record.cause == "graph break"


def dynamo_findings(dynamo: Dynamo | None) -> tuple[Diagnostic, ...]:
    """AL406 to AL409, by function."""
    functions = dynamo.functions if dynamo is not None else ()
    return tuple(finding for function in functions for finding in _of_function(function))


def _of_function(function: DynamoFunction) -> Iterator[Diagnostic]:
    yield from (_of_break(entry) for entry in function.breaks if entry.effect == "graph split")
    values = recompiled_values(function)
    for index, value in enumerate(values):
        is_limit = function.limit_hit and index == 0
        if is_limit or not value.is_normal:
            yield _of_value(function, value, is_limit)
    for constant in function.specialisations:
        if constant.kind == "compared":
            message = f"`{constant.name}` is the constant {constant.value}: {constant.reason}"
            yield Diagnostic("AL408", "information", message, constant.span)
    for skipped in function.skipped:
        if skipped.is_loss:
            hint = f"; {skipped.hint}" if skipped.hint else ""
            message = f"Dynamo skips `{skipped.name}`, which runs in eager: {skipped.reason}{hint}"
            yield Diagnostic("AL409", "warning", message, skipped.span)


def _of_break(entry: Break) -> Diagnostic:
    severity: Severity = "warning" if entry.bytes >= LARGE_CROSSING_BYTES else "information"
    code = f" ({entry.code})" if entry.code else ""
    cost = f"; {human_bytes(entry.bytes)} cross it on each call" if entry.bytes else ""
    hint = f"; {entry.hint}" if entry.hint else ""
    message = f"graph break{code} at `{entry.text}`: {entry.reason}{cost}{hint}"
    return Diagnostic("AL406", severity, message, entry.span, entry.related)


def _of_value(function: DynamoFunction, value: RecompiledValue, is_limit: bool) -> Diagnostic:
    count = counted(len(value.compilations), "recompilation")
    first = value.causes[0]
    limit = ", and new calls now run in eager" if is_limit else ""
    change = f" ({first.old} → {first.new})" if first.old and first.new else ""
    hint = value_hint(value)
    message = (
        f"`{function.name}`: {value_words(value)}{change}: {count} in {human_ms(1000 * value.seconds)}{limit}"
    )
    severity: Severity = "warning" if is_limit or len(value.compilations) > 1 else "information"
    span = value.span or first.call or function.span
    return Diagnostic("AL407", severity, message + (f"; {hint}" if hint else ""), span)


def over_dynamo_budget(function: DynamoFunction, budget: Budget) -> Iterator[Diagnostic]:
    """AL805 and AL806: one finding for each limit that the function exceeds."""
    breaks, recompilations = function.breaks, function.recompilations
    if budget.max_graph_breaks is not None and len(breaks) > budget.max_graph_breaks:
        message = (
            f"`{function.qualname}` has {counted(len(breaks), 'graph break')}, over its budget of"
            f" {budget.max_graph_breaks} (max-graph-breaks)"
        )
        related = tuple(Related(entry.span, f"graph break at `{entry.text}`") for entry in breaks)
        yield Diagnostic("AL805", "error", message, function.span, related)
    if budget.max_recompilations is not None and len(recompilations) > budget.max_recompilations:
        values = recompiled_values(function)
        message = (
            f"`{function.qualname}` has {counted(len(recompilations), 'recompilation')}, over its budget of"
            f" {budget.max_recompilations} (max-recompilations): {', '.join(map(value_words, values))}"
        )
        related = tuple(Related(value.span, value_words(value)) for value in values if value.span is not None)
        yield Diagnostic("AL806", "error", message, function.span, related)
