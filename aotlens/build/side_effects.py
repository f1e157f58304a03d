"""The rows of a function's side effects: attributes, containers, closures, and rebound buffers.

Invariant: one row for each object or name that the wrapper changes, in its order; each names a line.
"""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from aotlens.capture.free_variables.containers import ContainerUpdate
from aotlens.capture.free_variables.name_uses import UNKNOWN, name_uses
from aotlens.capture.free_variables.reachable import Binding
from aotlens.capture.records import Captured
from aotlens.model import report as rows
from aotlens.model.spans import site_at
from aotlens.model.target_facts import Leaving

REASONS: dict[Leaving, str] = {
    "bound": "each call binds it to the new value",
    "set": "each call sets it to the new value",
    "appended": "each call appends the new value",
    "refilled": "each call replaces the items of the container",
    "removed": "each call deletes it",
    "emptied": "each call empties it",
}
CARRIED = ", and starts with the value that the previous call stored"


def build_side_effects(captured: Captured, outputs: tuple[rows.Output, ...]) -> tuple[rows.Left, ...]:
    """Return one row for each side effect; `outputs` are the rows of all results, those of side effects among
    them."""
    structure = captured.structure
    if not structure.container_updates and not structure.rebound:
        return ()
    output_index = first_side_effect(captured)
    effects: list[rows.Left] = []
    for refill in structure.container_updates:
        writes = _writes(captured, refill)
        for key, handling, count in _parts(refill):
            sites = [site for known, site in writes if known is UNKNOWN or key is None or known == key]
            row = _row(_changed_name(refill, key), handling, range(output_index, output_index + count))
            carried = any(known == key for known, _ in refill.carried)
            effects.append(replace(row, carried=carried, sites=tuple(dict.fromkeys(sites))))
            output_index += count
    for fqn in structure.rebound:
        binding = Binding("the attribute", fqn.rsplit(".", 1)[-1], None, None)
        bound = tuple(site for _, site in _sites(name_uses(captured.reachable, binding).writes))
        effects.append(replace(_row(fqn, "bound", range(output_index, output_index + 1)), sites=bound))
        output_index += 1
    return tuple(_with_reason(row, captured, outputs) for row in effects)


def first_side_effect(captured: Captured) -> int:
    """Return the index of the first result of a side effect; the number of results where there is none."""
    structure = captured.structure
    count = sum(count for refill in structure.container_updates for _, _, count in _parts(refill))
    return len(captured.outputs) - len(structure.rebound) - count


def _parts(refill: ContainerUpdate) -> Iterator[tuple[Any, Leaving, int]]:
    """Yield each key, its side effect and how many results it then holds; None for the container as a
    whole."""
    new = [(index, item) for index, item in enumerate(refill.items) if item.old_index is None]
    whole = refill.cleared if refill.keyed else not refill.appends and not new
    if whole:
        yield None, "refilled" if refill.items else "emptied", 0
    yield from ((key, "removed", 0) for key in refill.removed)
    handling: Leaving = "bound" if refill.binds_names else "set"
    if not refill.keyed:
        handling = "appended" if refill.appends else "refilled"
    for index, item in new:
        yield item.key if refill.keyed else index, handling, item.spec.num_leaves


def _changed_name(refill: ContainerUpdate, key: Any) -> str:
    return refill.user_name if key is None or refill.binds_names else f"{refill.user_name}[{key!r}]"


def _row(target: str, handling: Leaving, outputs: range) -> rows.Left:
    return rows.Left(target, handling, tuple(outputs), False, "", ())


def _writes(captured: Captured, refill: ContainerUpdate) -> list[tuple[Any, rows.Site]]:
    """Return the user's expressions that write there, each with its key."""
    writes = refill.writes
    if refill.store is None:  # an argument, or a part of one
        local = Binding("the default", refill.user_name.partition("[")[0], None, None)
        writes = name_uses(captured.reachable, local).writes
    return list(_sites(writes))


def _sites(writes: Any) -> Iterator[tuple[Any, rows.Site]]:
    for write in writes:
        if write.span is not None:
            yield write.key, site_at(write.span)


def _with_reason(row: rows.Left, captured: Captured, outputs: tuple[rows.Output, ...]) -> rows.Left:
    """Return the row with a location where the user's code has none: that of the value, or of the
    function."""
    sites = row.sites or tuple(dict.fromkeys(site for index in row.outputs for site in outputs[index].sites))
    span = captured.subject.span
    if not sites and span is not None:
        sites = (site_at(span),)
    reason = REASONS[row.handling] + (CARRIED if row.carried else "")
    return replace(row, reason=reason, sites=sites)
