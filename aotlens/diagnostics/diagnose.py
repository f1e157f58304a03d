"""Findings about a target, from its report alone.

Invariant: a finding names the user's own variable and place and says what it costs; idiomatic code (running
statistics, tied weights, a cache written under no_grad) has none.  Source files are read only for the user's
words; where one is missing the finding names the graph's node instead.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from aotlens.diagnostics.cuda_graphs import CUDA_GRAPH_CHECKS
from aotlens.diagnostics.findings import Check, Limits, copy_cost, finding_at
from aotlens.diagnostics.gpu import GPU_CHECKS
from aotlens.diagnostics.inplace_edit import bind_new_value, write_to_clone, write_under_no_grad
from aotlens.diagnostics.saved import SAVED_CHECKS
from aotlens.model.eager import NotCompiled, NotCompiledCause
from aotlens.model.report import Diagnostic, Edit, Fix, Input, Severity, Site, Span, Target, Verdict
from aotlens.model.spans import own_first, source_line
from aotlens.view.quantities import counted, human_bytes

if TYPE_CHECKING:
    from aotlens.model.failure import Failure


def diagnose(target: Target, limits: Limits | None = None) -> tuple[Diagnostic, ...]:
    """Every finding about the target in the order of the source, those in the user's own files first."""
    bounds = limits or Limits()
    findings = [diagnostic for check in CHECKS for diagnostic in check(target, bounds)]
    return tuple(sorted(findings, key=_order))


def _order(diagnostic: Diagnostic) -> tuple[bool, str, int, int, str]:
    span, code = diagnostic.span, diagnostic.code
    return (own_first(span), span.file, span.line, span.col, code) if span else (False, "", 0, 0, code)


def copied_arguments(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL101 and AL105: a write that autograd must see is copied back by the wrapper."""
    for entry in target.inputs:
        if target.mode == "inference" or not _is_copied_for_autograd(entry):
            continue
        size = (entry.tensor.bytes or 0) if entry.tensor else 0
        copied = f"{human_bytes(size)} are copied back on every call"
        if entry.kind == "Buffer":
            message = (
                f"buffer `{entry.name}` takes up autograd history: it is changed with a value that"
                " carries a gradient, so each call keeps the graphs of those before; update it under"
                " torch.no_grad()"
            )
            fix = write_under_no_grad(entry.sites)
            finding = finding_at(entry.sites, target, "AL105", "warning", message)
            yield replace(finding, fixes=(fix,) if fix else ())
        else:
            message = (
                f"`{entry.name}` is changed in place where autograd must see it: {copied};"
                " return the new value"
            )
            severity: Severity = "warning" if size >= limits.copied_bytes else "information"
            finding = finding_at(entry.sites, target, "AL101", severity, message)
            yield replace(finding, fixes=mutation_fixes(entry), cost=copy_cost(target, size))


def hidden_changes(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL102: a tensor that needs a gradient is written behind autograd's back."""
    for entry in target.inputs:
        if not (entry.hidden_from_autograd and entry.requires_grad and entry.mutates_data):
            continue
        message = (
            f"`{entry.name}` needs a gradient and is changed through `.data`: autograd does not notice, so"
            " gradients may be wrong without an error; write under torch.no_grad()"
        )
        fixes = tuple(fix for site in entry.sites if (fix := _under_no_grad(site)))
        yield replace(finding_at(entry.sites, target, "AL102", "warning", message), fixes=fixes)


def changed_geometry(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL103 and AL104: the caller's tensor object gets another shape or other memory."""
    for entry in target.inputs:
        if entry.mutates_storage_metadata:
            message = f"`{entry.name}` is given other memory; views that the caller holds keep the old one"
            yield finding_at(_metadata_first(entry), target, "AL104", "warning", f"{message}; use copy_()")
        elif entry.mutates_metadata:
            message = (
                f"the shape or strides of `{entry.name}` change for the caller: the wrapper sets them on"
                " every call, and the next call is compiled again; use the form without the underscore"
            )
            finding = finding_at(_metadata_first(entry), target, "AL103", "warning", message)
            yield replace(finding, fixes=mutation_fixes(entry))


def _metadata_first(entry: Input) -> tuple[Site, ...]:
    """The expressions that change the sizes, strides or storage; all that mutate it where none is known."""
    return entry.metadata_sites or entry.sites


def changed_aliases(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL201 and AL202: arguments that are one tensor, or share memory, while one of them is written."""
    reported: set[int] = set()
    for entry in target.inputs:
        twins = [other for other in target.inputs if other.duplicate_of == entry.index]
        if entry.mutates_data and twins and entry.duplicate_of is None:
            names = _names([entry, *twins])
            message = f"{names} are one tensor and it is changed: the graph is valid only for such calls"
            yield finding_at(entry.sites, target, "AL201", "warning", message)
        shared = [other for other in target.inputs if other.index in entry.shares_storage_with]
        distinct = [other for other in shared if other.duplicate_of is None and other.index != entry.index]
        if entry.mutates_data and distinct and entry.index not in reported:
            reported.update(other.index for other in distinct)
            message = (
                f"`{entry.name}` is changed and shares memory with {_names(distinct)}: both views are"
                " made again on every call; pass their base, or clone the one that is only read"
            )
            yield finding_at(entry.sites, target, "AL202", "warning", message)


def view_outputs(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL203: so many views among the results that making them counts."""
    views = [
        entry
        for entry in target.outputs
        if entry.base and entry.output_type not in ("is_input", "non_alias", "unsafe_view_alias")
    ]
    if len(views) < limits.view_outputs:
        return
    message = (
        f"{counted(len(views), 'output')} are views, each made again in Python on every call; return the"
        " base, or clones where no memory need be shared"
    )
    sites = dict.fromkeys(site for entry in views for site in entry.sites)
    yield finding_at(tuple(sites), target, "AL203", "information", message)


def large_wrapper_copies(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL501: a large write-back that AL101 and AL105 do not tell of."""
    for entry in target.inputs:
        size = (entry.tensor.bytes or 0) if entry.tensor else 0
        copied = entry.mutation_type == "mutated_out_graph" and entry.mutates_data
        is_reported = target.mode == "training" and _is_copied_for_autograd(entry)
        if copied and size >= limits.write_back_bytes and not is_reported:
            message = (
                f"the wrapper writes `{entry.name}` back after the graph: {human_bytes(size)} are copied on"
                " every call; change only the slice that is new, or return the new value"
            )
            finding = finding_at(entry.sites, target, "AL501", "warning", message)
            yield replace(finding, cost=copy_cost(target, size))


def failing_backward(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL702: the forward runs, and the backward raises."""
    failure = target.failing_backward
    if failure is not None:
        sites = (failure.site,) if failure.site is not None else ()
        results = f" for {', '.join(f'`{name}`' for name in failure.results)}" if failure.results else ""
        message = f"the backward fails{results}, in eager too: {failure.message}"
        yield finding_at(sites, target, "AL702", "warning", message)


CHECKS: tuple[Check, ...] = (
    copied_arguments,
    hidden_changes,
    changed_geometry,
    changed_aliases,
    view_outputs,
    *SAVED_CHECKS,
    *GPU_CHECKS,
    *CUDA_GRAPH_CHECKS,
    large_wrapper_copies,
    failing_backward,
)
"""Every check; `aotlens.diagnostics.rules` explains their codes."""

FAILURE_FAMILY = "AL9"
"""How the codes start for failures of the script, of the worker or of aotlens."""

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
"""What an unsupported case's message says when values decide the path: AL401 then."""


def from_failure(failure: Failure) -> Diagnostic:
    """A failed trace as a finding, at the line to blame where there is one."""
    code = FAILURE_CODES[failure.kind]
    if code == "AL402" and any(words in failure.message for words in DATA_DEPENDENT):
        code = "AL401"
    span = _line_span(failure.file, failure.line) if failure.file and failure.line else None
    severity: Severity = SEVERITIES.get(failure.kind, "error")
    return Diagnostic(code, severity, failure.message, span)


NOT_COMPILED_SEVERITIES: dict[NotCompiledCause, Severity] = {
    "unsupported": "error",
    "internal": "error",
    "backend": "error",
    "whole function": "warning",
    "rest of function": "warning",
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


def mismatch(message: str, span: Span | None) -> Diagnostic:
    """AL701: compiled and eager differ."""
    return Diagnostic("AL701", "error", message, span)


def with_verdict(target: Target, verdict: Verdict | None) -> Target:
    """The target with how a call compared with eager; anything but `equal` is a finding, and stands first."""
    if verdict is None:
        return target
    findings = finding_of(verdict, target)
    return replace(target, verified=verdict, diagnostics=(*findings, *target.diagnostics))


def finding_of(verdict: Verdict, target: Target) -> tuple[Diagnostic, ...]:
    """AL701 for a difference, AL703 for a call that was not compared whole."""
    match verdict.outcome:
        case "differs":
            return (mismatch(verdict.text, target.span),)
        case "not verified":
            return (Diagnostic("AL703", "warning", f"`{target.name}`: {verdict.headline}", target.span),)
        case _:
            return ()


def _line_span(file: str, line: int) -> Span:
    """The text of a line without its indentation; empty when the file cannot be read."""
    text = source_line(file, line)
    start = len(text) - len(text.lstrip())
    return Span(file, line, len(text[:start].encode()), line, len(text.rstrip().encode()))


def _is_copied_for_autograd(entry: Input) -> bool:
    """Its new value leaves the graph because it has a history, not because its shape changes."""
    return (
        entry.mutation_type == "mutated_out_graph"
        and entry.mutates_data
        and not (entry.mutates_metadata or entry.under_no_grad or entry.hidden_from_autograd)
    )


def _under_no_grad(site: Site) -> Fix | None:
    """Offered where the write is a statement of its own on one line, so that nothing else moves."""
    line, span = source_line(site.span.file, site.span.line), site.span
    indent = line[: len(line) - len(line.lstrip())]
    alone = line.strip() == site.text and span.line == span.end_line and span.col == len(indent.encode())
    if not alone or ".data." not in site.text:
        return None
    text = f"with torch.no_grad():\n{indent}    {site.text.replace('.data.', '.', 1)}"
    return Fix("Write under torch.no_grad()", (Edit(span, text),))


def mutation_fixes(entry: Input) -> tuple[Fix, ...]:
    """The ways to leave the caller's argument as it is, the one that costs nothing first."""
    if entry.kind != "UserInput" or not entry.sites:
        return ()
    anew = bind_new_value(entry.sites[0], entry.name) if len(entry.sites) == 1 else None
    return tuple(fix for fix in (anew, write_to_clone(entry.sites[0], entry.name)) if fix)


def _names(entries: list[Input]) -> str:
    return " and ".join(f"`{entry.name}`" for entry in entries)
