"""Optimizer steps with fewer temporaries, and optimizers with less state.

| source | edit |
|---|---|
| `torch.optim.AdamW(…)` | `fused=True`: one kernel without temporaries |
| the same on a GPU, or with `foreach=True` | `foreach=False`: temporaries of one parameter at a time |
| an optimizer of another package that has the option | the same |
| `torch.optim.AdamW(…)`, where torchao is installed | `torchao.optim.AdamW8bit(…)`, with 8-bit state |
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace
from itertools import pairwise

from aotlens.fit.advice.jobs import EIGHT_BIT_MODULE, NamesOutcome
from aotlens.fit.advice.proposals import Proposal, Site, add_import, add_keywords, proposal
from aotlens.fixes.source import Source
from aotlens.model.fit import Fit, FitAdvice
from aotlens.model.source import Edit, Span

__all__ = ["EIGHT_BIT", "constructors", "eight_bit_states", "eight_bit_suggestion", "optimizer_kernels"]

WITH_FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
WITH_FOREACH = WITH_FUSED | {"Adadelta", "Adafactor", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"}

EIGHT_BIT = "8-bit optimizer"
EIGHT_BIT_SUFFIX = "8bit"
EIGHT_BIT_CLASSES = {f"torch.optim.{name}": f"{name}{EIGHT_BIT_SUFFIX}" for name in ("Adam", "AdamW")}
EIGHT_BIT_OPTIONS = frozenset({"lr", "betas", "eps", "weight_decay", "amsgrad"})
"""What these classes take, with torch's defaults; as positional arguments in torch's order."""
KERNEL_OPTIONS = frozenset({"fused", "foreach"})
"""Options that choose how torch computes a step, and nothing else."""
EIGHT_BIT_STATES = ("exp_avg", "exp_avg_sq")
EIGHT_BIT_SHARE = 0.26
"""What an 8-bit state needs of one in float32: a byte for each value, and a scale for each block of 256."""
LEAST_SAVED = 0.05
"""The smallest part of the peak that is worth the suggestion."""


def eight_bit_suggestion(fit: Fit, outcome: NamesOutcome) -> FitAdvice | None:
    """Suggest Adam with 8-bit state, without an edit, to a script for which none can be proposed."""
    optimizers = [fact.type_name for fact in outcome.names if fact.kind == "optimizer"]
    if any(name.endswith(EIGHT_BIT_SUFFIX) for name in optimizers):
        return None
    state_bytes = sum(
        row.bytes for row in fit.by_kind if row.kind == "optimizer state" and row.state in EIGHT_BIT_STATES
    )
    saved_bytes = int(state_bytes * (1 - EIGHT_BIT_SHARE))
    if saved_bytes < LEAST_SAVED * fit.step_peak_bytes:
        return None
    is_missing = bool(outcome.file) and not outcome.has_eight_bit
    reason = f"`{EIGHT_BIT_MODULE}` is not installed" if is_missing else "no call of `AdamW` can be replaced"
    return FitAdvice(
        f"Use Adam with 8-bit state, as `{EIGHT_BIT_MODULE}.AdamW8bit`",
        EIGHT_BIT,
        fit.step_peak_bytes - saved_bytes,
        saved_bytes,
        cost="another library",
        compared=f"computed from the bytes of the state; small parameters stay in float32; {reason}",
    )


def eight_bit_states(site: Site) -> Iterator[Proposal | None]:
    """Yield torchao's class with 8-bit state for each Adam of torch, if it takes the same options.

    It rounds the state, so the edit is not exact.
    """
    if not site.has_eight_bit:
        return
    for source in site.sources.values():
        for call, _ in constructors(source, site):
            name = EIGHT_BIT_CLASSES.get(source.imported_path(call.func))
            keywords = {keyword.arg for keyword in call.keywords}
            if name is None or not keywords <= EIGHT_BIT_OPTIONS | KERNEL_OPTIONS:
                continue
            made = proposal(
                EIGHT_BIT,
                _group(source, call),
                f"Use `{name}` of torchao, whose state has 8 bits, instead of `{source.code(call.func)}`",
                source.replace(call.func, f"{EIGHT_BIT_MODULE}.{name}"),
                *_without_kernel_options(source, call),
                *add_import(source, f"import {EIGHT_BIT_MODULE}"),
            )
            yield None if made is None else replace(made, is_exact=False)


def _without_kernel_options(source: Source, call: ast.Call) -> Iterator[Edit]:
    """Yield the edits that delete these options, each with the comma before it."""
    arguments: list[ast.expr | ast.keyword] = [*call.args, *call.keywords]
    arguments.sort(key=lambda argument: (argument.lineno, argument.col_offset))
    for previous, argument in pairwise(arguments):
        if isinstance(argument, ast.keyword) and argument.arg in KERNEL_OPTIONS:
            start = previous.end_lineno or previous.lineno, previous.end_col_offset or 0
            end = argument.end_lineno or argument.lineno, argument.end_col_offset or 0
            yield Edit(Span(source.file, *start, *end), "")


def optimizer_kernels(site: Site) -> Iterator[Proposal | None]:
    """Yield other implementations of the step for each optimizer that is constructed."""
    for source in site.sources.values():
        for call, type_name in constructors(source, site):
            keywords = {keyword.arg: source.code(keyword.value) for keyword in call.keywords}
            group = _group(source, call)
            if type_name in WITH_FUSED and "fused" not in keywords and "differentiable" not in keywords:
                text = _with(source, call, "fused", "True", without="foreach")
                title = f"Use the fused `{type_name}`, whose step allocates no temporaries"
                yield _in_optimizer(proposal("fused optimizer", group, title, source.replace(call, text)))
            if _may_be_foreach(site, type_name, keywords):
                text = _with(source, call, "foreach", "False", without="foreach")
                title = f"Let `{type_name}` update one parameter at a time"
                yield _in_optimizer(proposal("foreach=False", group, title, source.replace(call, text)))


def _in_optimizer(made: Proposal | None) -> Proposal | None:
    return None if made is None else replace(made, phases=("optimizer",))


def _may_be_foreach(site: Site, type_name: str, keywords: Mapping[str | None, str]) -> bool:
    """Return True if an optimizer with these options may update all parameters at once."""
    is_torchs = type_name in WITH_FOREACH
    made = [fact for fact in site.names.values() if fact.type_name == type_name]
    if not is_torchs and not any("foreach" in fact.options for fact in made):
        return False
    if keywords.keys() & {"foreach", "fused"}:
        return keywords.get("foreach") == "True"
    return not is_torchs or site.fit.device == "cuda"


def constructors(source: Source, site: Site) -> Iterator[tuple[ast.Call, str]]:
    """Yield the calls that make an optimizer, with its class."""
    for node in source.nodes(ast.Call):
        name = source.code(node.func).rpartition(".")[2]
        if name.removesuffix(EIGHT_BIT_SUFFIX) in WITH_FOREACH and node.args:
            yield node, name
            continue
        match source.parents.get(node):
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if value is node:
                fact = site.names.get(target)
                if fact is not None and fact.kind == "optimizer" and node.args:
                    yield node, fact.type_name


def _group(source: Source, call: ast.Call) -> str:
    """Return the class and how many calls of it precede this one, the same before and after an edit."""

    def name(node: ast.Call) -> str:
        return source.code(node.func).rpartition(".")[2].removesuffix(EIGHT_BIT_SUFFIX)

    calls = [node for node in source.nodes(ast.Call) if name(node) == name(call)]
    return f"optimizer {name(call)} {sum(node.lineno < call.lineno for node in calls)}"


def _with(source: Source, call: ast.Call, name: str, value: str, without: str) -> str:
    """Return the call with a keyword, in place of the keyword `without`."""
    for keyword in call.keywords:
        if keyword.arg == without:
            written = source.code(call)
            return written.replace(f"{without}={source.code(keyword.value)}", f"{name}={value}")
    return add_keywords(source.code(call), {name: value})
