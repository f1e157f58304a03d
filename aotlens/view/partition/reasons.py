"""The reasons of the partition in words, the same in every front end.

Invariant: standard library only; a sentence names nodes by the user's expression where there is one.
"""

from collections.abc import Sequence

from aotlens.model.partition import OwnChoice
from aotlens.model.report import BudgetResult, Certificate, Partition, RecomputedValue, SavedValue, Span
from aotlens.model.spans import text_of
from aotlens.view.names import first_names, without_number
from aotlens.view.partition.saved import value_name
from aotlens.view.quantities import counted, human_bytes, human_flops, percent
from aotlens.view.shorten import shortened

MOST_NAMES = 3
MOST_DIFFERENT = 6
"""Names of values that only our solver saves, or only torch."""
LONGEST_EXPRESSION = 24
"""Characters of an expression within a sentence."""
LONGEST_NAME = 40
"""Characters of a value's name in a list."""

FREEDOMS = {
    "forced": "nothing can change it",
    "rule": "a rule, which an override can change",
    "choice": "chosen by the solver",
}
"""What may still be chosen about a value; what the user chose has no words here."""


def node_label(node: str, span: Span | None) -> str:
    """Return `addmm in self.mlp(x)`: the operator, and the user's expression where there is one."""
    operator, text = without_number(node), text_of(span) if span else ""
    if len(text) > LONGEST_EXPRESSION:
        text = f"{text[: LONGEST_EXPRESSION - 1].rstrip()}…"
    return f"{operator} in {text}" if text else operator


def reason_text(value: SavedValue | RecomputedValue) -> str:
    """Return `slow to recompute [costly]`; a report without codes has the words alone."""
    return f"{value.reason} [{value.code}]" if value.code else value.reason


def overruled_text(value: SavedValue | RecomputedValue) -> str:
    """Return `overrules an activation checkpoint`; empty where nothing is overruled."""
    return f"overrules {value.overrode}" if value.overrode else ""


def why_text(value: SavedValue | RecomputedValue) -> str:
    """Return the reason, then the certificate of a choice, then who was overruled, in one line."""
    certificate = value.certificate if isinstance(value, SavedValue) else None
    details = certificate_text(certificate) if certificate is not None else ""
    return "; ".join(filter(None, (reason_text(value), details, overruled_text(value))))


def certificate_text(certificate: Certificate) -> str:
    """Return `recomputing it would need addmm in self.mlp(x) (slow to recompute); the next cheapest
    …`."""
    parts = [forbidden_text(certificate), price_text(certificate)]
    return "; ".join(part for part in parts if part)


def forbidden_text(certificate: Certificate) -> str:
    """Return why the value cannot be recomputed; empty where only the cost decides."""
    if certificate.above is None:
        return ""
    if certificate.path[-1:] == (certificate.above,):
        return f"not recomputed: {certificate.above_reason}"
    above = node_label(certificate.above, certificate.above_span)
    return f"recomputing it would need {above} ({certificate.above_reason})"


def price_text(certificate: Certificate) -> str:
    """Return the cost of the next cheapest set, and what it would save instead."""
    size, flops = certificate.price_bytes, certificate.price_flops
    if size is None:
        return "no other set provides all values that the backward reads"
    more = [human_bytes(size)] if size > 0 else []
    more += [human_flops(flops)] if flops > 0 else []
    gains = [human_bytes(-size)] if size < 0 else []
    gains += [human_flops(-flops)] if flops < 0 else []
    costs = f"costs {' and '.join(more)} more" if more else "costs the same"
    costs += f" and {' and '.join(gains)} less" if gains else ""
    instead = f", saving {listed(certificate.instead)} instead" if certificate.instead else ""
    return f"the next cheapest set {costs}{instead}"


def named(nodes: Sequence[str], partition: Partition) -> tuple[str, ...]:
    """Nodes under the user's names or expressions for them: `hidden (mm and mm_2)`."""
    known: tuple[SavedValue | RecomputedValue, ...] = (*partition.recomputed, *partition.saved)
    values = {value.node: value for value in known}
    by_name: dict[str, list[str]] = {}
    for node in nodes:
        name = value_name(values[node]) if node in values else node
        by_name.setdefault(shortened(name, LONGEST_NAME), []).append(node)
    return tuple(name if group == [name] else f"{name} ({listed(group)})" for name, group in by_name.items())


def listed(names: Sequence[str]) -> str:
    """Return `a, b and c`; the first few and a count of the others where there are more."""
    if len(names) > MOST_NAMES:
        return first_names(names, MOST_NAMES)
    return " and ".join(filter(None, (", ".join(names[:-1]), *names[-1:])))


def budget_text(budget: BudgetResult) -> str:
    """Return in one sentence how the budget was met."""
    asked, saved = human_bytes(budget.asked_bytes), human_bytes(budget.saved_bytes)
    met = f"budget {asked}: {saved} saved, {human_flops(budget.recompute_flops)} recomputed"
    if budget.saved_bytes > budget.asked_bytes:
        return f"{met}; every choice saves as much"
    if budget.exact:
        return f"{met}, the least recomputation that fits ({budget.method})"
    above = f"at most {percent(budget.gap, 1)} above the least"
    return f"{met}, {above}, which is {human_flops(budget.bound_flops)} or more ({budget.method})"


def solver_choice_text(partition: Partition) -> str:
    """Return what our solver would save of a graph that torch partitioned; empty for a partition of ours."""
    own = partition.own
    if own is None:
        return partition.own_note
    solver = "our solver" if own.policy == "min-cut" else f"our solver with policy {own.policy}"
    if not own.only_ours and not own.only_torchs:
        return f"{solver} chooses the same: {human_bytes(own.saved_bytes)}"
    differs = []
    if own.only_torchs:
        differs.append(f"not {first_names(own.only_torchs, MOST_DIFFERENT)}")
    if own.only_ours:
        differs.append(f"but {first_names(own.only_ours, MOST_DIFFERENT)}")
    cost = f"{human_bytes(own.saved_bytes)} and recompute {human_flops(own.recompute_flops)}"
    same = counted(len(own.same), "value")
    return f"{solver} would save {cost}: {same} as torch, {', '.join(differs)}"


def solver_choice_label(own: OwnChoice) -> str:
    """Return the label of the choice that a what-if of a log is compared with."""
    return f"our solver's choice under {own.policy}, not torch's"
