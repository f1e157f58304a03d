"""The table of tools: name, what it does, its arguments, its answer, whether it may run user code.

Invariant: `TOOLS` is the only list; the server, the schemas and the documents are made of it.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aotlens.mcp import answers, requests
from aotlens.mcp.session import Session

__all__ = ["INSTRUCTIONS", "TOOLS", "Tool"]

INSTRUCTIONS = """\
aotlens shows what ahead-of-time compilation does to a PyTorch function, at the source line.

Tools that trace run the user's script in a child process, with the user's rights, and need
`run_user_code: true`; set it only for a script that you would run with `python`. With `report` instead, a
tool reads what an earlier call returned and runs nothing.

A session: `inspect` or `why` the script, read `summary` and `diagnostics`, edit the source or call
`apply-fix`, retrace, `diff` the two reports, and `verify` against eager. `inspect` answers briefly: ask
for `parts` or a `stage` of the same report when you need the rows behind a number.

Lines are counted from 1, columns from 0 in UTF-8 bytes."""

_RUNS = " Runs the user's script in a child process, only with `run_user_code: true`."


@dataclass(frozen=True, slots=True)
class Tool:
    """One row of the table."""

    name: str
    title: str
    description: str
    request: type
    answer: type
    run: Callable[..., Any]
    """A method of `Session`: takes the request and the call, and returns the answer."""
    may_run_user_code: bool = False
    writes: bool = False
    """Whether it may change files of the user's by itself."""


TOOLS = (
    Tool(
        "inspect",
        "What compiling a target does",
        "Show what compiling a function or module does: mutated inputs, aliased outputs, values saved for the"
        " backward with the reason and the source line, peak memory, what the wrapper does on each call,"
        " kernels, diagnostics with fixes. With `report` it reads an earlier report and runs nothing."
        + _RUNS.replace("Runs", "With `target` it runs"),
        requests.InspectRequest,
        answers.InspectAnswer,
        Session.inspect,
        may_run_user_code=True,
    ),
    Tool(
        "why",
        "Why it breaks the graph and recompiles",
        "Explain graph breaks, recompilations, specialised sizes and compile time of a script that calls"
        " torch.compile, with any backend, at the expression. `try_fixes` also runs edited copies and"
        " reports the edits that keep the results; `forecast` reports which other arguments would"
        " recompile. With `report` it reads an earlier report and runs nothing."
        + _RUNS.replace("Runs", "With `script` it runs"),
        requests.WhyRequest,
        answers.WhyAnswer,
        Session.why,
        may_run_user_code=True,
    ),
    Tool(
        "fit",
        "Whether a training step fits into memory",
        "Predict the peak memory of a script's whole step: parameters, gradients, optimizer state, saved"
        " activations and temporaries, by kind and by line, when the peak is reached, and with `gpu` whether"
        " it fits. The script runs on tensors without memory, so it may be larger than this machine. With"
        " `report` it reads an earlier report and runs nothing."
        + _RUNS.replace("Runs", "With `script` it runs"),
        requests.FitRequest,
        answers.FitAnswer,
        Session.fit,
        may_run_user_code=True,
    ),
    Tool(
        "verify",
        "Compiled against eager",
        "Compare the compiled targets of a script with eager: values, gradients, mutations and aliasing, and"
        " name the first node that differs." + _RUNS,
        requests.VerifyRequest,
        answers.VerifyAnswer,
        Session.verify,
        may_run_user_code=True,
    ),
    Tool(
        "what-if",
        "What another choice of saved values costs",
        "Answer what saving or recomputing certain values would cost: saved bytes, repeated work, peak."
        " Nothing is edited." + _RUNS,
        requests.WhatIfRequest,
        answers.WhatIfAnswer,
        Session.what_if,
        may_run_user_code=True,
    ),
    Tool(
        "diff",
        "What changed between two reports",
        "Show what an edit or a branch changed: operators, saved bytes, peak memory, kernels, wrapper steps"
        " and diagnostics, by line. With `before` and `after` it reads two reports and runs nothing."
        + _RUNS.replace("Runs", "With `git` it runs"),
        requests.DiffRequest,
        answers.DiffAnswer,
        Session.diff,
        may_run_user_code=True,
    ),
    Tool(
        "apply-fix",
        "Show or write a fix",
        "Show one of a report's fixes as a diff; with `write` and the token of that diff, write it. A file"
        " that changed since the report was made is not written. Runs nothing.",
        requests.ApplyFixRequest,
        answers.ApplyFixAnswer,
        Session.apply_fix,
        writes=True,
    ),
)
