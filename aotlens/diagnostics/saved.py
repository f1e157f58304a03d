"""Family AL3: what is saved for the backward."""

from collections.abc import Callable, Iterator

from aotlens.diagnostics.checkpoint_call import Advice, best_call
from aotlens.diagnostics.checkpoint_edit import checkpointed
from aotlens.diagnostics.findings import Check, Limits, peak_cost
from aotlens.diagnostics.rule import Rule
from aotlens.diagnostics.step_memory import RULES as STEP_RULES
from aotlens.model.report import (
    Diagnostic,
    Partition,
    Related,
    SavedValue,
    Severity,
    Span,
    Target,
)
from aotlens.view.partition.saved import value_name
from aotlens.view.quantities import each_of, human_bytes, percent

RULES: tuple[Rule, ...] = (
    Rule(
        "AL301",
        "A large activation is saved for the backward",
        "information",
        "The value is computed in the forward and read in the backward, so it stays in memory in between."
        " The three largest values with at least 8 MiB and a tenth of all saved bytes are reported.",
        "Its bytes, from the forward until the backward has read it; in a loop over layers, once per layer.",
        "Wrap the block that makes and uses it in `torch.utils.checkpoint.checkpoint(block, x,"
        " use_reentrant=False)`: the backward then recomputes it. If checkpointing a call of your code"
        " would lower the peak by a tenth, the finding names the call, says how much it would save, and"
        " offers the edit. A smaller batch or `bfloat16` autocast also shrinks the value.",
        "for block in self.blocks:\n    x = block(x)",
        "for block in self.blocks:\n    x = checkpoint(block, x, use_reentrant=False)",
    ),
    Rule(
        "AL302",
        "A wider dtype doubles the saved bytes",
        "information",
        "A value is saved for the backward in a wider dtype than its input: a `float32` copy of a"
        " `bfloat16` value under autocast, both precisions of one value, or `float64` from a constant, a"
        " NumPy array or a small argument. Reported from 1 MiB and a fiftieth of all saved bytes on.",
        "Twice the bytes (`float32` beside `bfloat16`, `float64` beside `float32`) until the backward.",
        "Cast later, so that the narrow value is saved; create constants in the dtype of the data; use a"
        " fused operator (`scaled_dot_product_attention`, `rms_norm`), which widens only internally.",
        'weight = torch.ones(512)  # float32\nwith torch.autocast("cuda", torch.bfloat16):\n'
        "    y = (self.up(x) * weight).sigmoid()",
        "y = (self.up(x) * weight.to(torch.bfloat16)).sigmoid()",
    ),
    Rule(
        "AL303",
        "A mask is saved as numbers",
        "information",
        "A value with only two different numbers (a comparison cast to float, a one-hot matrix, random"
        " integers 0 and 1) is saved for the backward in a dtype wider than a byte. Dropout and Bernoulli"
        " masks are not reported: `min-cut` saves them as booleans. Reported from 1 MiB and a fiftieth of"
        " all saved bytes on.",
        "Four bytes (`float32`) per element instead of one for a boolean.",
        "Multiply by the boolean output of the comparison, or choose with `torch.where`: both take a"
        " boolean mask.",
        "mask = torch.randint(0, 2, x.shape).float()\ny = x.exp() * mask",
        "mask = torch.randint(0, 2, x.shape).bool()\ny = x.exp() * mask",
    ),
    Rule(
        "AL304",
        "A value is saved that no gradient depends on",
        "warning",
        "The backward reads the value, but the gradients do not depend on it: it is multiplied by zero,"
        " raised to the power zero, or only its sizes are needed. `aotlens inspect --dead-values` also"
        " finds such values numerically: it runs the backward graph on random values and changes one saved"
        " value at a time.",
        "Its bytes and the work of computing it, for nothing.",
        "Remove the term that has no effect, or detach the value; in a custom `autograd.Function` save the"
        " sizes instead of the tensor.",
        "class Scale(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        ctx.save_for_backward(x.exp())\n        return x * 2\n\n    @staticmethod\n"
        "    def backward(ctx, grad):\n        (y,) = ctx.saved_tensors\n        return grad * 2 + 0 * y",
        "class Scale(torch.autograd.Function):\n    @staticmethod\n    def forward(ctx, x):\n"
        "        return x * 2\n\n    @staticmethod\n    def backward(ctx, grad):\n        return grad * 2",
    ),
    Rule(
        "AL305",
        "An activation checkpoint is not followed",
        "information",
        "A value inside an activation checkpoint is saved anyway, or a value that the checkpoint's policy"
        " saves is recomputed. The finding says why: recomputing would give other random numbers or repeat"
        " a side effect, an input has changed, or another rule takes precedence. Reported from 1 MiB and a"
        " fiftieth of all saved bytes on.",
        "The bytes that the checkpoint should free, or the work that its policy should avoid.",
        "Move the random operator or the mutation out of the checkpointed function, or accept it: a mask"
        " takes a quarter of the bytes of the masked values.",
        "def block(x):\n    return torch.randn_like(x) * x.exp()\n\n\n"
        "checkpoint(block, x, use_reentrant=False)",
    ),
    Rule(
        "AL306",
        "A memory budget raises the peak",
        "warning",
        "With this budget less is saved for the backward, but the predicted peak of forward and backward"
        " is higher than with a larger budget or without one, because the values that the backward"
        " recomputes are alive together. Budgets of 1.25, 1.5, 2 and 3 times this one are compared.",
        "More memory and more work than a larger budget needs.",
        "Choose a larger budget; the frontier in the report lists what each one costs. A checkpoint around"
        " each layer lowers the peak as well.",
        "$ aotlens inspect model.py --memory-budget 0.1",
        "$ aotlens inspect model.py --memory-budget 0.5",
    ),
    *STEP_RULES,
)


Size = Callable[[SavedValue], int]


def large_saved_values(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL301: the expressions with the most saved bytes, all layers of a loop together."""
    partition = target.partition
    if partition is None or not partition.saved_bytes:
        return
    least = max(limits.saved_bytes, limits.saved_share * partition.saved_bytes)
    groups = _by_span(partition.saved, _bytes, least)[: limits.saved_findings]
    if not groups:
        return
    advice = best_call(target)
    for group in groups:
        yield _large_saved(target, partition, group, advice)


def _bytes(value: SavedValue) -> int:
    return value.bytes


def _by_span(values: tuple[SavedValue, ...], size: Size, least: float) -> list[list[SavedValue]]:
    """Return the values of each expression that together have at least that size, the largest first."""
    groups: dict[Span | None, list[SavedValue]] = {}
    for value in values:
        groups.setdefault(value.span, []).append(value)
    large = [group for group in groups.values() if _total(group, size) >= least]
    return sorted(large, key=lambda group: -_total(group, size))


def _total(group: list[SavedValue], size: Size) -> int:
    return sum(size(value) for value in group)


def _large_saved(
    target: Target, partition: Partition, group: list[SavedValue], advice: Advice | None
) -> Diagnostic:
    first, total = group[0], _total(group, _bytes)
    share = f"{percent(total / partition.saved_bytes)} of all saved bytes"
    uses = dict.fromkeys(use.span for value in group for use in value.used_by if use.span)
    related = tuple(
        Related(span, "its backward reads the value") for span in list(uses)[:3] if span != first.span
    )
    fix = None
    if advice is not None and any(value.node in advice.no_longer_saved for value in group):
        fix = checkpointed(advice)
        what = f"checkpointing this call would save {human_bytes(advice.saved_bytes)} in all"
        related = (*related, Related(advice.span, f"{what} instead of {human_bytes(partition.saved_bytes)}"))
    message = f"`{value_name(first)}` saves {human_bytes(total)}{_each(group)} for the backward, {share}"
    return Diagnostic(
        "AL301",
        "information",
        f"{message}: {first.reason}",
        first.span or target.span,
        related,
        (fix,) if fix is not None else (),
        peak_cost(target, total),
    )


def _each(group: list[SavedValue]) -> str:
    """` (12 × 4.0 MiB)`, where they are several of one size."""
    alike = len(group) > 1 and len({value.bytes for value in group}) == 1
    return f" ({each_of(len(group), human_bytes(group[0].bytes))})" if alike else ""


SAVING_CODES: dict[str, tuple[str, Severity]] = {
    "copy": ("AL302", "information"),
    "precision": ("AL302", "information"),
    "mask": ("AL303", "information"),
    "dead": ("AL304", "warning"),
}
"""Code and severity by the kind of saving."""


def possible_savings(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL302, AL303 and AL304: saved bytes without information."""
    partition = target.partition
    if partition is None:
        return
    least = max(limits.saving_bytes, limits.saving_share * partition.saved_bytes)
    for kind, (code, severity) in SAVING_CODES.items():
        values = tuple(value for value in partition.saved if value.saving and value.saving.kind == kind)
        for group in _by_span(values, _saving_bytes, least):
            yield _saving_finding(target, group, code, severity)


def _saving_bytes(value: SavedValue) -> int:
    return value.saving.bytes if value.saving is not None else 0


def _saving_finding(target: Target, group: list[SavedValue], code: str, severity: Severity) -> Diagnostic:
    first = group[0]
    assert first.saving is not None  # as of every value of the group
    total, freed = human_bytes(_total(group, _bytes)), human_bytes(_total(group, _saving_bytes))
    message = (
        f"`{value_name(first)}` is saved for the backward as {first.tensor.short()}, {total}{_each(group)}:"
        f" {first.saving.reason}; {freed} could be freed"
    )
    cause = first.saving.span
    related = (Related(cause, "the cause is here"),) if cause is not None and cause != first.span else ()
    cost = peak_cost(target, _total(group, _saving_bytes))
    return Diagnostic(code, severity, message, first.span or target.span, related, (), cost)


def overruled_checkpoints(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL305: a checkpoint's requests that were overruled."""
    partition = target.partition
    if partition is None:
        return
    least = max(limits.saving_bytes, limits.saving_share * partition.saved_bytes)
    saved = tuple(value for value in partition.saved if value.overrode)
    for group in _by_span(saved, _bytes, least):
        first = group[0]
        total = human_bytes(_total(group, _bytes))
        message = (
            f"`{value_name(first)}` is saved for the backward, {total}{_each(group)}, despite"
            f" {first.overrode}: {first.reason}"
        )
        yield Diagnostic("AL305", "information", message, first.span or target.span)
    reported: set[Span | None] = set()
    for value in partition.recomputed:
        if value.overrode and value.bytes >= least and value.span not in reported:
            reported.add(value.span)
            message = f"`{value_name(value)}` is recomputed despite {value.overrode}: {value.reason}"
            yield Diagnostic("AL305", "information", message, value.span or target.span)


def harmful_budget(target: Target, limits: Limits) -> Iterator[Diagnostic]:
    """AL306: less is saved than with a larger budget or with none, and yet the peak is higher."""
    partition, memory = target.partition, target.memory
    if partition is None or partition.budget is None or partition.unbudgeted is None or memory is None:
        return
    others = (partition.unbudgeted, *partition.larger_budgets)
    best = min(others, key=lambda totals: totals.peak_bytes)
    if memory.peak_bytes <= best.peak_bytes:
        return
    with_more = "without it" if best is partition.unbudgeted else "with a larger budget"
    message = (
        f"the memory budget of {human_bytes(partition.budget.asked_bytes)} raises the predicted peak to"
        f" {human_bytes(memory.peak_bytes)}, from {human_bytes(best.peak_bytes)} {with_more}: it saves"
        f" {human_bytes(partition.saved_bytes)} instead of {human_bytes(best.saved_bytes)}, and the values"
        " that the backward recomputes are alive together"
    )
    yield Diagnostic("AL306", "warning", message, target.span)


CHECKS: tuple[Check, ...] = (
    large_saved_values,
    possible_savings,
    overruled_checkpoints,
    harmful_budget,
)
