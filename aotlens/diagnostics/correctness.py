"""Family AL7: compiled calls that differ from eager, or could not be compared with it."""

from collections.abc import Iterator
from dataclasses import replace

from aotlens.diagnostics.findings import Check, Limits, finding_at
from aotlens.diagnostics.rule import Rule
from aotlens.model.report import Diagnostic, Target, Verdict

RULES: tuple[Rule, ...] = (
    Rule(
        "AL701",
        "Compiled and eager differ",
        "error",
        "`aotlens verify`, or `run --verify`, found a value, gradient, mutated argument or alias that"
        " differs from eager beyond the stated tolerance.",
        "Results cannot be trusted.",
        "The message names the first thing that differs, and the node that computes it. Please report it:"
        " unless the code uses random numbers from outside of torch, it is a compiler bug.",
        "$ aotlens verify model.py::Model",
    ),
    Rule(
        "AL702",
        "The backward fails, in eager too",
        "warning",
        "Autograd cannot compute the gradient of this expression: a value that it needs is overwritten, or"
        " the operator has no derivative. The forward runs in compiled code as in eager; the backward"
        " raises the same error in both.",
        "No gradients. It does not matter if the function is never differentiated.",
        "Write the new value to another tensor, or use a clone that is made before the write.",
        "def step(x, y):\n    z = (x + y).relu_()\n    z.mul_(2)\n    return z",
        "def step(x, y):\n    return (x + y).relu() * 2",
    ),
    Rule(
        "AL703",
        "Not verified",
        "warning",
        "`aotlens verify`, or `run --verify`, could not compare this target completely with eager: it was"
        " compiled but not called, eager raises on the arguments or in the backward, two runs of eager"
        " differ, or the comparison itself failed. The message states which.",
        "Nothing is known about the results. The command exits with 1; `--allow-unverified` lets it pass.",
        "Call the target in the script with arguments that eager accepts, or write an example above it. A"
        " function that depends on time, files or global state is comparable once these are arguments.",
        "import time\n\n@torch.compile\ndef step(x):\n    return x * time.time()",
        "@torch.compile\ndef step(x, now):\n    return x * now",
    ),
)


def failing_backward(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL702: the forward runs, and the backward raises."""
    failure = target.failing_backward
    if failure is not None:
        sites = (failure.site,) if failure.site is not None else ()
        results = f" for {', '.join(f'`{name}`' for name in failure.results)}" if failure.results else ""
        message = f"the backward fails{results}, in eager too: {failure.message}"
        yield finding_at(sites, target, "AL702", "warning", message)


def with_verdict(target: Target, verdict: Verdict | None) -> Target:
    """Return the target with its comparison with eager; any outcome except `equal` is the first finding."""
    if verdict is None:
        return target
    findings = _findings(verdict, target)
    return replace(target, verified=verdict, diagnostics=(*findings, *target.diagnostics))


def _findings(verdict: Verdict, target: Target) -> tuple[Diagnostic, ...]:
    """AL701 for a difference, AL703 for a call that was not compared whole."""
    match verdict.outcome:
        case "differs":
            return (Diagnostic("AL701", "error", verdict.text, target.span),)
        case "not verified":
            return (Diagnostic("AL703", "warning", f"`{target.name}`: {verdict.headline}", target.span),)
        case _:
            return ()


CHECKS: tuple[Check, ...] = (failing_backward,)
