"""Family AL1: arguments and buffers that the function mutates.

Invariant: idiomatic code (running statistics, tied weights, a cache written under no_grad) has no finding."""

from collections.abc import Iterator
from dataclasses import replace

from aotlens.diagnostics.findings import Check, Limits, copy_cost, finding_at
from aotlens.diagnostics.inplace_edit import bind_new_value, write_to_clone, write_under_no_grad
from aotlens.diagnostics.rule import Rule
from aotlens.model.report import Diagnostic, Edit, Fix, Input, Severity, Site, Target
from aotlens.model.spans import source_line
from aotlens.view.quantities import human_bytes

RULES: tuple[Rule, ...] = (
    Rule(
        "AL101",
        "An argument with a gradient is mutated in place",
        "warning",
        "The function writes to an argument that is part of an autograd graph. The compiled graph computes"
        " the new value, and the wrapper copies it back outside of the graph, where autograd records the"
        " write.",
        "One more graph output and a copy of the whole tensor on every call. It is a warning from 1 MiB"
        " on, otherwise information.",
        "Return the new value and let the caller bind it. Buffers, and writes under `torch.no_grad()`,"
        " are not reported: they stay inside the graph.",
        "def step(state, x):\n    state.mul_(0.9)\n    return state + x",
        "def step(state, x):\n    state = state * 0.9\n    return state, state + x",
    ),
    Rule(
        "AL102",
        "A mutation is hidden from autograd",
        "warning",
        "A tensor that needs a gradient is written through `.data`. Autograd does not see the write: no"
        " gradient flows through it, and the version counter, which protects saved values, does not"
        " change.",
        "Gradients may be wrong without an error, in eager as well as compiled.",
        "Write under `torch.no_grad()`. Autograd does not record that write either, but raises an error"
        " when a saved value was overwritten.",
        "def clamp_weight(weight):\n    weight.data.clamp_(-1, 1)",
        "def clamp_weight(weight):\n    with torch.no_grad():\n        weight.clamp_(-1, 1)",
    ),
    Rule(
        "AL103",
        "An argument's shape or strides are changed in place",
        "warning",
        "A method such as `t_()`, `unsqueeze_()` or `transpose_()` changes the sizes and strides of the"
        " caller's tensor, not its values.",
        "The wrapper sets the new shape on the caller's tensor on every call, outside of the graph. The"
        " next call with this tensor has another shape, so it recompiles.",
        "Use the method without the underscore and return the view.",
        "def flip(x):\n    x.t_()\n    return x * 2",
        "def flip(x):\n    return x.t() * 2",
    ),
    Rule(
        "AL104",
        "An argument's storage is replaced",
        "warning",
        "`set_()`, an assignment to `.data`, or a resize changes the storage of the caller's tensor.",
        "The wrapper repeats it on every call. Views that the caller took before still use the old storage.",
        "Copy into the existing memory with `copy_()`, or return the new tensor.",
        "def refill(buffer, x):\n    buffer.data = x * 2",
        "def refill(buffer, x):\n    buffer.copy_(x * 2)",
    ),
    Rule(
        "AL105",
        "A buffer's autograd graph grows with every call",
        "warning",
        "A buffer is updated in place with a value that has a gradient, so the buffer becomes part of the"
        " autograd graph of this call and of every later one.",
        "Every call keeps the graphs of all previous calls alive, or the second backward fails. The"
        " wrapper also copies the buffer on every call.",
        "Update it under `torch.no_grad()`, or from a detached value. Running statistics of batch norm are"
        " not reported: they have no gradient.",
        "def forward(self, x):\n    self.ema.mul_(0.9).add_(x.mean(0))\n    return x - self.ema",
        "def forward(self, x):\n    with torch.no_grad():\n        self.ema.mul_(0.9).add_(x.mean(0))\n"
        "    return x - self.ema",
    ),
)


def copied_arguments(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL101 and AL105: a write that autograd must see is copied back by the wrapper."""
    for entry in target.inputs:
        if target.mode == "inference" or not is_copied_for_autograd(entry):
            continue
        size = (entry.tensor.bytes or 0) if entry.tensor else 0
        copied = f"{human_bytes(size)} are copied back on every call"
        if entry.kind == "Buffer":
            message = (
                f"buffer `{entry.name}` is updated with a value that has a gradient, so each call keeps the"
                " autograd graphs of all previous calls alive; update it under torch.no_grad()"
            )
            fix = write_under_no_grad(entry.sites)
            finding = finding_at(entry.sites, target, "AL105", "warning", message)
            yield replace(finding, fixes=(fix,) if fix else ())
        else:
            message = (
                f"`{entry.name}` is mutated in place, and autograd must record it: {copied}; return the new"
                " value"
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
            f"`{entry.name}` needs a gradient and is mutated through `.data`, which autograd does not see,"
            " so gradients may be wrong without an error; write under torch.no_grad()"
        )
        fixes = tuple(fix for site in entry.sites if (fix := _under_no_grad(site)))
        yield replace(finding_at(entry.sites, target, "AL102", "warning", message), fixes=fixes)


def changed_geometry(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL103 and AL104: the caller's tensor object gets another shape or other memory."""
    for entry in target.inputs:
        if entry.mutates_storage_metadata:
            message = (
                f"the storage of `{entry.name}` is replaced; views that the caller holds still use the old"
                " storage"
            )
            yield finding_at(_metadata_first(entry), target, "AL104", "warning", f"{message}; use copy_()")
        elif entry.mutates_metadata:
            message = (
                f"this changes the shape or strides of the caller's `{entry.name}`: the wrapper sets them"
                " on every call, and the next call recompiles; use the method without the underscore"
            )
            finding = finding_at(_metadata_first(entry), target, "AL103", "warning", message)
            yield replace(finding, fixes=mutation_fixes(entry))


def _metadata_first(entry: Input) -> tuple[Site, ...]:
    """Return the expressions that change sizes, strides or storage; all mutations where none is known."""
    return entry.metadata_sites or entry.sites


def is_copied_for_autograd(entry: Input) -> bool:
    """Return True if the new value leaves the graph for its grad_fn, not for a changed shape."""
    return (
        entry.mutation_type == "mutated_out_graph"
        and entry.mutates_data
        and not (entry.mutates_metadata or entry.under_no_grad or entry.hidden_from_autograd)
    )


def _under_no_grad(site: Site) -> Fix | None:
    """Return the edit if the write is a statement on one line, so that nothing else moves."""
    line, span = source_line(site.span.file, site.span.line), site.span
    indent = line[: len(line) - len(line.lstrip())]
    alone = line.strip() == site.text and span.line == span.end_line and span.col == len(indent.encode())
    if not alone or ".data." not in site.text:
        return None
    text = f"with torch.no_grad():\n{indent}    {site.text.replace('.data.', '.', 1)}"
    return Fix("Write under torch.no_grad()", (Edit(span, text),))


def mutation_fixes(entry: Input) -> tuple[Fix, ...]:
    """Return the edits that leave the caller's argument unchanged, the cheapest first."""
    if entry.kind != "UserInput" or not entry.sites:
        return ()
    anew = bind_new_value(entry.sites[0], entry.name) if len(entry.sites) == 1 else None
    return tuple(fix for fix in (anew, write_to_clone(entry.sites[0], entry.name)) if fix)


CHECKS: tuple[Check, ...] = (copied_arguments, hidden_changes, changed_geometry)
