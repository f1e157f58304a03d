"""Let the partition of compiled graphs recompute more: `torch.compile` with a memory budget of aotlens.

| source | edit |
|---|---|
| `@torch.compile` | `@torch.compile(backend="aotlens", options={"memory_budget": 0.5})` |
| `torch.compile(model)` | `torch.compile(model, backend="aotlens", options={"memory_budget": 0.5})` |
"""

import ast
from collections.abc import Iterator

from aotlens.fit.advice.proposals import Proposal, Site, add_keywords, proposal
from aotlens.fixes.source import Source
from aotlens.model.source import Edit
from aotlens.view.quantities import percent

__all__ = ["graph_budgets"]

FRACTIONS = (0.5, 0.2)
"""Parts of the bytes that the default policy saves."""
OURS = '"aotlens"'


def graph_budgets(site: Site) -> Iterator[Proposal | None]:
    """Yield budgets for everything that a file passes to `torch.compile`."""
    for source in site.sources.values():
        for fraction in FRACTIONS:
            edits = [edit for edit in _edits(source, fraction) if edit is not None]
            if edits:
                title = f"Let compiled graphs save at most {percent(fraction)} of what they save by default"
                yield proposal("memory budget", f"memory budget {source.file}", title, *edits)


def _edits(source: Source, fraction: float) -> Iterator[Edit | None]:
    keywords = {"backend": OURS, "options": f'{{"memory_budget": {fraction}}}'}
    for call in source.nodes(ast.Call):
        if _compiles(source, call.func):
            yield _with_budget(source, call, fraction)
    for node in source.nodes(ast.FunctionDef, ast.AsyncFunctionDef):
        assert isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        for decorator in node.decorator_list:
            if _compiles(source, decorator):  # without arguments; `@torch.compile(…)` is among the calls
                text = add_keywords(f"{source.code(decorator)}()", keywords)
                yield source.replace(decorator, text)


def _compiles(source: Source, function: ast.expr) -> bool:
    return source.code(function) == "torch.compile"


def _with_budget(source: Source, call: ast.Call, fraction: float) -> Edit | None:
    keywords = {keyword.arg: keyword.value for keyword in call.keywords}
    backend = keywords.get("backend")
    if "mode" in keywords or (backend is not None and source.code(backend).strip("'\"") != "inductor"):
        return None
    added = {} if backend is not None else {"backend": OURS}
    budget = f'"memory_budget": {fraction}'
    options = keywords.get("options")
    if options is None:
        return source.replace(call, add_keywords(source.code(call), {**added, "options": f"{{{budget}}}"}))
    if not isinstance(options, ast.Dict):
        return None
    written = source.code(options)
    separator = ", " if options.keys else ""
    text = source.code(call).replace(written, f"{{{budget}{separator}{written[1:]}")
    return source.replace(call, add_keywords(text, added) if added else text)
