"""Optimizer steps with fewer temporaries.

| source | edit |
|---|---|
| `torch.optim.AdamW(…)` | `fused=True`: one kernel without temporaries |
| the same on a GPU, or with `foreach=True` | `foreach=False`: temporaries of one parameter at a time |
| an optimizer of another package that has the option | the same |
"""

import ast
from collections.abc import Iterator, Mapping
from dataclasses import replace

from aotlens.fit.advice.proposals import Proposal, Site, add_keywords, proposal
from aotlens.fixes.source import Source
from aotlens.model.fit import Fit, FitAdvice

__all__ = ["constructors", "eight_bit_optimizer", "optimizer_kernels"]

WITH_FUSED = frozenset({"Adam", "AdamW", "SGD", "Adagrad"})
WITH_FOREACH = WITH_FUSED | {"Adadelta", "Adafactor", "Adamax", "ASGD", "NAdam", "RAdam", "RMSprop", "Rprop"}

EIGHT_BIT_STATES = ("exp_avg", "exp_avg_sq")
EIGHT_BIT_SHARE = 0.26
"""What an 8-bit state needs of one in float32: a byte for each value, and a scale for each block of 256."""
LEAST_SAVED = 0.05
"""The smallest part of the peak that is worth the suggestion."""


def eight_bit_optimizer(fit: Fit) -> FitAdvice | None:
    """Suggest Adam with 8-bit state: without an edit, because it needs a library and changes the training."""
    state_bytes = sum(
        row.bytes for row in fit.by_kind if row.kind == "optimizer state" and row.state in EIGHT_BIT_STATES
    )
    saved_bytes = int(state_bytes * (1 - EIGHT_BIT_SHARE))
    if saved_bytes < LEAST_SAVED * fit.step_peak_bytes:
        return None
    return FitAdvice(
        "Use Adam with 8-bit state, as `torchao.optim.AdamW8bit`",
        "8-bit optimizer",
        fit.step_peak_bytes - saved_bytes,
        saved_bytes,
        cost="another library",
        compared="computed from the bytes of the state; small parameters stay in float32",
    )


def optimizer_kernels(site: Site) -> Iterator[Proposal | None]:
    """Yield other implementations of the step for each optimizer that is constructed."""
    for source in site.sources.values():
        for call, type_name in constructors(source, site):
            keywords = {keyword.arg: source.code(keyword.value) for keyword in call.keywords}
            group = f"optimizer {source.code(call.func)} {_ordinal(source, call)}"
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
        if name in WITH_FOREACH and node.args:
            yield node, name
            continue
        match source.parents.get(node):
            case ast.Assign(targets=[ast.Name(id=target)], value=value) if value is node:
                fact = site.names.get(target)
                if fact is not None and fact.kind == "optimizer" and node.args:
                    yield node, fact.type_name


def _ordinal(source: Source, call: ast.Call) -> int:
    """Return how many calls of the same function precede this one."""
    text = source.code(call.func)
    return sum(
        source.code(node.func) == text and node.lineno < call.lineno for node in source.nodes(ast.Call)
    )


def _with(source: Source, call: ast.Call, name: str, value: str, without: str) -> str:
    """Return the call with a keyword, in place of the keyword `without`."""
    for keyword in call.keywords:
        if keyword.arg == without:
            written = source.code(call)
            return written.replace(f"{without}={source.code(keyword.value)}", f"{name}={value}")
    return add_keywords(source.code(call), {name: value})
