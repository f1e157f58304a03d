"""Family AL2: arguments that share storage, and outputs that are views."""

from collections.abc import Iterator

from aotlens.diagnostics.findings import Check, Limits, finding_at
from aotlens.diagnostics.rule import Rule
from aotlens.model.report import Diagnostic, Input, Target
from aotlens.view.quantities import counted

RULES: tuple[Rule, ...] = (
    Rule(
        "AL201",
        "The same tensor is passed twice and mutated",
        "warning",
        "Two arguments are the same tensor, and the function writes to it: a write through one name is"
        " visible through the other.",
        "The graph is valid only for calls that pass the same tensor for both arguments; any other call"
        " recompiles.",
        "Pass it once, or pass a clone where two values are meant.",
        "def mix(a, b):\n    a.add_(1)\n    return a * b\n\n\nmix(x, x)",
        "mix(x, x.clone())",
    ),
    Rule(
        "AL202",
        "Arguments share memory and one is mutated",
        "warning",
        "Two arguments are views of one storage, and the function writes to one of them. The compiled"
        " function must take their common base and regenerate both views, otherwise the write would not be"
        " visible through the other one.",
        "The views are regenerated on every call, and the graph is valid only for arguments that overlap"
        " in the same way.",
        "Pass the base and take the views inside, or clone the one that is only read.",
        "def shift(a, b):\n    a.add_(1)\n    return b * 2\n\n\nshift(x[:4], x[2:])",
        "def shift(x):\n    x[:4].add_(1)\n    return x[2:] * 2",
    ),
    Rule(
        "AL203",
        "Many outputs are views that are regenerated on each call",
        "information",
        "A graph returns new tensors. An output that is a view of an argument or of an intermediate is"
        " regenerated after the graph, so that later in-place writes behave as in eager.",
        "A few microseconds of Python per view on every call, which matters when the graph itself is short.",
        "Return the base and let the caller take the views, or return `.clone()` if they need not share"
        " memory.",
        "def heads(x):\n    return [x[:, i] for i in range(16)]",
        "def heads(x):\n    return x",
    ),
)


def changed_aliases(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL201 and AL202: arguments that are one tensor, or share memory, while one of them is written."""
    reported: set[int] = set()
    for entry in target.inputs:
        duplicates = [other for other in target.inputs if other.duplicate_of == entry.index]
        if entry.mutates_data and duplicates and entry.duplicate_of is None:
            names = _names([entry, *duplicates])
            message = f"{names} are the same tensor, which is mutated: the graph is valid only for such calls"
            yield finding_at(entry.sites, target, "AL201", "warning", message)
        shared = [other for other in target.inputs if other.index in entry.shares_storage_with]
        distinct = [other for other in shared if other.duplicate_of is None and other.index != entry.index]
        if entry.mutates_data and distinct and entry.index not in reported:
            reported.update(other.index for other in distinct)
            message = (
                f"`{entry.name}` is mutated and shares memory with {_names(distinct)}: both views are"
                " regenerated on every call; pass their base, or clone the one that is only read"
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
        f"{counted(len(views), 'output')} are views, each regenerated in Python on every call; return the"
        " base, or clones if they need not share memory"
    )
    sites = dict.fromkeys(site for entry in views for site in entry.sites)
    yield finding_at(tuple(sites), target, "AL203", "information", message)


def _names(entries: list[Input]) -> str:
    return " and ".join(f"`{entry.name}`" for entry in entries)


CHECKS: tuple[Check, ...] = (changed_aliases, view_outputs)
