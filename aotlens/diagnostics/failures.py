"""Family AL9: a trace that failed, as a finding at the line to blame."""

from aotlens.diagnostics.findings import Check
from aotlens.diagnostics.rule import Rule
from aotlens.model.failure import Failure
from aotlens.model.report import Diagnostic, Severity, Span
from aotlens.model.spans import source_line

RULES: tuple[Rule, ...] = (
    Rule(
        "AL901",
        "The script does not parse",
        "error",
        "Python cannot read the file.",
        "Nothing is traced; the report shown is that of the last version that parsed.",
        "Correct the line that the message names.",
        "def f(x:\n    return x",
    ),
    Rule(
        "AL902",
        "Your code raised an error",
        "error",
        "The script, or the function while it was traced, raised. The traceback contains only your own"
        " frames.",
        "Nothing after that line is traced.",
        "Run the script with `python`: it fails in the same way. An error that occurs only under aotlens"
        " is a bug.",
        "x @ torch.ones(3, 5)  # x is 8 by 4",
    ),
    Rule(
        "AL903",
        "The script ended before a target was called",
        "error",
        "The script called `sys.exit` or `os._exit`.",
        "Targets after that line are not traced.",
        "Pass the arguments that the script needs, or name a target with an example: `SCRIPT::name`.",
        "if len(sys.argv) < 2:\n    sys.exit(2)",
    ),
    Rule(
        "AL904",
        "No such file",
        "error",
        "The path is not a readable file.",
        "Nothing is traced.",
        "Check the path; it is relative to the current folder.",
        "$ aotlens inspect modle.py",
    ),
    Rule(
        "AL905",
        "No target found",
        "error",
        "The script passed nothing to `torch.compile` and has no `@aotlens.compile`, or the name after"
        " `::` is not a function, method or module class of it.",
        "Nothing is traced.",
        "Name one with `SCRIPT::name`, and write its arguments in an example comment above it.",
        "$ aotlens inspect model.py",
        "$ aotlens inspect model.py::Model.forward",
    ),
    Rule(
        "AL906",
        "The example arguments do not fit",
        "error",
        "An example comment or decorator does not follow the short form, or does not fit the function's"
        " parameters.",
        "The target is not traced.",
        "Write one item per parameter: `dtype[sizes]`, optionally `[strides]`, a device and `grad`, or a"
        " Python literal.",
        "# aotlens: example float[8, 16]",
        "# aotlens: example f32[8, 16] grad, 3",
    ),
    Rule(
        "AL907",
        "Tracing took too long",
        "error",
        "The script or the trace exceeded the time limit and was stopped.",
        "There is no report.",
        "Name one target with an example (`SCRIPT::name`), so that the script's main part is skipped, or"
        " raise the limit.",
        "while True:\n    train()",
    ),
    Rule(
        "AL908",
        "Tracing needed too much memory",
        "error",
        "The child process that traces exceeded its memory limit.",
        "There is no report.",
        "Name one target with an example (`SCRIPT::name`): its arguments then use no memory. Or raise the"
        " limit.",
        "data = torch.ones(1 << 40)",
    ),
    Rule(
        "AL909",
        "The tracing process crashed",
        "error",
        "A signal ended the process: native code failed in the script or below it, or it was killed.",
        "There is no report.",
        "Run the script with `python -X faulthandler` to see where.",
        "ctypes.string_at(0)",
    ),
    Rule(
        "AL910",
        "The trace was cancelled",
        "hint",
        "You or a newer edit stopped it.",
        "The report shown is that of the previous version.",
        "Retrace.",
        "",
    ),
    Rule(
        "AL911",
        "An error inside aotlens",
        "error",
        "An internal check of aotlens failed. It is not your code's fault.",
        "The target is not compiled.",
        "Please report it with the message and, if you can, the function.",
        "",
    ),
    Rule(
        "AL912",
        "The code generator failed on a graph",
        "error",
        "Inductor, or the backend that was chosen, raised an error while it compiled the graph or its"
        " backward.",
        "The graph runs in eager; with `--strict` the script ends here.",
        "The message contains the backend's error. `--backend eager` runs the graph without generated code.",
        "",
    ),
)


CHECKS: tuple[Check, ...] = ()
"""None: the findings come from a failed trace, by `from_failure`."""

FAILURE_FAMILY = "AL9"
"""The prefix of codes for failures of the script, of the worker or of aotlens."""


FAILURE_CODES = {
    "syntax": "AL901",
    "user": "AL902",
    "exit": "AL903",
    "no-file": "AL904",
    "no-target": "AL905",
    "bad-example": "AL906",
    "timeout": "AL907",
    "memory": "AL908",
    "crash": "AL909",
    "killed": "AL909",
    "cancelled": "AL910",
    "internal": "AL911",
    "no-gpu": "AL403",
    "no-value": "AL404",
    "left-out": "AL405",
    "unsupported": "AL402",
}
"""The code of a failed trace by the kind of its failure."""


SEVERITIES: dict[str, Severity] = {"cancelled": "hint", "left-out": "warning"}
"""Of failures that are no errors."""


DATA_DEPENDENT = ("depends on data", "data-dependent")
"""Parts of the message of an unsupported case in which values decide the path: code AL401."""


def from_failure(failure: Failure) -> Diagnostic:
    """Return a failed trace as a finding, at the line that caused it where there is one."""
    code = FAILURE_CODES[failure.kind]
    if code == "AL402" and any(words in failure.message for words in DATA_DEPENDENT):
        code = "AL401"
    span = _line_span(failure.file, failure.line) if failure.file and failure.line else None
    severity: Severity = SEVERITIES.get(failure.kind, "error")
    return Diagnostic(code, severity, failure.message, span)


def _line_span(file: str, line: int) -> Span:
    """Return the text of a line without its indentation; empty when the file cannot be read."""
    text = source_line(file, line)
    start = len(text) - len(text.lstrip())
    return Span(file, line, len(text[:start].encode()), line, len(text.rstrip().encode()))
