"""Family AL4: what Dynamo cannot capture, splits, recompiles, specialises or skips, and ranks that differ."""

from collections.abc import Iterator

from aotlens.diagnostics.failures import DATA_DEPENDENT
from aotlens.diagnostics.findings import Check
from aotlens.diagnostics.rule import Rule
from aotlens.model.dynamo import Break, Dynamo, DynamoFunction
from aotlens.model.eager import NotCompiled, NotCompiledCause
from aotlens.model.ranks import Ranks
from aotlens.model.report import Diagnostic, Related, Severity
from aotlens.model.source import Span
from aotlens.view.quantities import counted, human_bytes
from aotlens.view.ranks import difference_text, mismatch_text, rank_names
from aotlens.view.recompiled_values import (
    RecompiledValue,
    duration_words,
    limit_words,
    recompiled_values,
    value_hint,
    value_words,
)

RULES: tuple[Rule, ...] = (
    Rule(
        "AL401",
        "The program depends on a tensor's values",
        "error",
        "An `if`, a loop, `.item()` or a size depends on values that are known only when the program runs."
        " A graph that is compiled ahead of time has one path.",
        "The function cannot be captured as one graph.",
        "Compute both sides and choose with `torch.where`, or move that line out of the compiled function.",
        "def relu(x):\n    return x if x.sum() > 0 else x * 0",
        "def relu(x):\n    return torch.where(x.sum() > 0, x, x * 0)",
    ),
    Rule(
        "AL402",
        "An unsupported case",
        "error",
        "aotlens recognises this case and does not compile it, because a wrong result would be worse than"
        " none.",
        "The target is not compiled.",
        "The message names the case, your line and a workaround. `torch.compile` with another backend is"
        " not affected.",
        "mix(nested_tensor)",
    ),
    Rule(
        "AL403",
        "The script asks for a GPU that is not present",
        "error",
        "The script uses a CUDA device, and this machine has none.",
        "Nothing after that line is traced.",
        "Name a GPU with `--gpu`: the script is traced as if it were present. Or let the script choose:"
        " `device = 'cuda' if torch.cuda.is_available() else 'cpu'`.",
        "model.cuda()",
    ),
    Rule(
        "AL404",
        "The script needs a value that a fake tensor does not have",
        "error",
        "Under `--fake` tensors have sizes and dtypes but no values; this line reads one. If targets were"
        " captured before it, the finding is only information.",
        "Nothing after that line is traced.",
        "Leave `--fake` out, or guard the line; print sizes instead of values.",
        "print(loss.item())",
    ),
    Rule(
        "AL405",
        "Code passed to torch.compile runs in eager",
        "warning",
        "Dynamo captures nothing of the function, or nothing from this line on: it cannot trace an"
        " expression such as `nn.LSTM` and cannot resume after it. The same code is used for a function"
        " that was never called, has no tensor operation, was recompiled too often, or for which the"
        " script chose another backend; and for a module of torch's own whose calls run no graph, because"
        " all such modules share their compilations and Dynamo could not trace another one.",
        "That code runs in eager, and no graph of it is shown.",
        "The message has Dynamo's own hint. Compile the parts around this expression, or remove"
        " `torch.compile` and name the function (`aotlens inspect SCRIPT::name`): it is then captured"
        " without Dynamo.",
        "lstm = nn.LSTM(32, 64)\n\n@torch.compile\ndef run(xs):\n    return lstm(xs)[0].sum()",
        "torch._dynamo.config.allow_rnn = True",
    ),
    Rule(
        "AL406",
        "A graph break",
        "warning",
        "Dynamo cannot trace this expression: it splits the function, and the expression runs in eager"
        " between two graphs. It is a warning if 1 MiB or more crosses the break on each call.",
        "Nothing is fused across the break, each part has guards and a call of its own, and tensors that"
        " both parts need are written to memory and read again.",
        "The message has a hint, torch's number for the break, and the library's line if one stops Dynamo."
        " Move the expression out of the compiled function if you can.",
        "y = layer(x)\nprint(y.mean())\nreturn head(y)",
        "y = layer(x)\nreturn head(y)",
    ),
    Rule(
        "AL407",
        "A value that recompiles the function",
        "warning",
        "Dynamo compiled the function for one value, a guard checks that value on each call, and a call"
        " with another value recompiles the function. The second size of a dimension and the second value"
        " of a number are not reported, since Dynamo then makes them symbols; nor is the first"
        " change of the grad mode, as by `torch.no_grad()`.",
        "The time of each recompilation. After eight of them (`torch._dynamo.config.recompile_limit`) calls"
        " that need another graph run in eager.",
        "The message names the value as you write it, with the old and the new value, and what to do: put"
        " a counter into a buffer, a changing number into a 0-d tensor, and mark a size with"
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
        "The size was a symbol, so that one compilation serves many sizes, until this expression compared"
        " it with a value. Here it is specialised to that constant.",
        "Calls with another size recompile the function.",
        "Compare with a range (`x.shape[0] >= 2`), or move the comparison out of the compiled function."
        " Other sizes may still vary.",
        "@torch.compile(dynamic=True)\ndef pad(x):\n    if x.shape[0] == 5:\n        return x\n"
        "    return torch.cat([x, x])",
    ),
    Rule(
        "AL409",
        "A function that Dynamo skips",
        "warning",
        "Dynamo left the function to Python without reporting a graph break: tracing is disabled for it, a"
        " dispatch mode is active, or its file is on Dynamo's skip list. Torch's own layers are on it"
        " up to torch 2.13, so that `nn.Sequential(…).compile()` compiles nothing.",
        "Everything in it runs in eager.",
        "The message has the reason. Functions without tensors are skipped too, and are not reported. For a"
        " layer of torch's own, write `layer = torch.compile(layer)` in place of `layer.compile()`.",
        "with MyDispatchMode():\n    compiled(x)",
        "compiled(x)",
    ),
    Rule(
        "AL410",
        "Ranks that compile different graphs",
        "warning",
        "For one compile id, some ranks compiled another graph than the others, or none. The cause is a"
        " branch on the rank, or data of other sizes. Graphs count as equal if only a GPU's index or a"
        " process group's name differs.",
        "Each rank compiles for itself, so the slowest compilation holds up all of them, and a collective in"
        " one graph that another graph lacks hangs the job.",
        "The message names the first node that differs, and its line on both ranks. Have all ranks take"
        " the same branch inside of compiled functions, and pad batches to the same size.",
        "@torch.compile\ndef step(x):\n    if dist.get_rank() == 0:\n        x = x * 2\n    return x.relu()",
        "@torch.compile\ndef step(x, scale):\n    return (x * scale).relu()",
    ),
    Rule(
        "AL411",
        "Ranks that run different collectives",
        "error",
        "Collectives meet in the order in which ranks start them. In the compiled graphs of two ranks, the"
        " collectives at the same position differ in operation, sizes or data type, or one rank has no more.",
        "The ranks wait for each other until the watchdog ends the job, or read memory of the wrong size.",
        "The message names both collectives; make the code before them the same on all ranks.",
        "@torch.compile\ndef step(x):\n    if dist.get_rank() == 0:\n        dist.all_reduce(x)\n"
        "    return x",
        "@torch.compile\ndef step(x):\n    dist.all_reduce(x)\n    return x",
    ),
)

CHECKS: tuple[Check, ...] = ()
"""Empty: the findings come from Dynamo's records, from code that ran in eager, and from the ranks of a
run."""


NOT_COMPILED_SEVERITIES: dict[NotCompiledCause, Severity] = {
    "unsupported": "error",
    "internal": "error",
    "backend": "error",
    "whole function": "warning",
    "rest of function": "warning",
    "some calls": "warning",
    "recompile limit": "warning",
}
"""Of code that ran in eager; other causes are information."""


def from_not_compiled(record: NotCompiled) -> Diagnostic:
    """Code that was passed to `torch.compile` and ran in eager, as a finding at its expression."""
    severity = NOT_COMPILED_SEVERITIES.get(record.cause, "information")
    code = record.code
    if code == "AL402" and any(words in record.reason for words in DATA_DEPENDENT):
        code = "AL401"
    message = f"`{record.name}` is not compiled ({record.cause}): {record.reason}"
    return Diagnostic(code, severity, message, record.span)


LARGE_CROSSING_BYTES = 1 << 20
"""From these bytes on a graph break is a warning: they are written and read again on each call."""


def is_found_in_dynamo(record: NotCompiled) -> bool:
    """Return True for a graph break or skipped layer, which `dynamo_findings` reports with more facts."""
    return record.cause in ("graph break", "skipped")


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
    limit = f"; {limit_words(function)}" if is_limit else ""
    took = duration_words(value.seconds, value.unended)
    change = f" ({first.old} → {first.new})" if first.old and first.new else ""
    hint = value_hint(function, value)
    message = (
        f"`{function.name}`: {value_words(value)}{change}: {count}{f' in {took}' if took else ''}{limit}"
    )
    severity: Severity = "warning" if is_limit or len(value.compilations) > 1 else "information"
    span = value.span or first.call or function.span
    return Diagnostic("AL407", severity, message + (f"; {hint}" if hint else ""), span)


def rank_findings(ranks: Ranks | None) -> tuple[Diagnostic, ...]:
    """Return one finding for each difference; none where all ranks agree."""
    return () if ranks is None else (*_of_collectives(ranks), *_of_graphs(ranks))


def _of_graphs(ranks: Ranks) -> Iterator[Diagnostic]:
    for row in ranks.differences:
        message = f"ranks compile different graphs: {difference_text(row)}"
        related = _related(row.other_span, f"{rank_names(row.others)}: {row.other_text}")
        yield Diagnostic("AL410", "warning", message, row.span or row.other_span, related)


def _of_collectives(ranks: Ranks) -> Iterator[Diagnostic]:
    for row in ranks.mismatches:
        message = f"ranks run different collectives: {mismatch_text(row)}"
        related = _related(row.other_span, f"rank {row.other}: {row.other_text}")
        yield Diagnostic("AL411", "error", message, row.span or row.other_span, related)


def _related(span: Span | None, message: str) -> tuple[Related, ...]:
    return () if span is None else (Related(span, message),)
