"""The report's rows of saved and recomputed values, with certificates, frontier and what-ifs."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch

from aotlens.build.certificates import Certificate, certificates
from aotlens.build.dead_values import DeadValueCheck
from aotlens.build.memory import predicted_peak
from aotlens.build.operators import build_region
from aotlens.ir.layers import Layers
from aotlens.ir.program import Node
from aotlens.ir.tensor_text import describe_tensor
from aotlens.model import report as rows
from aotlens.partition.budget import Frontier
from aotlens.partition.policies import added_bytes, save_all_reads
from aotlens.partition.problem import build_problem
from aotlens.partition.records import Partitioned, Recomputed, Saved, Split
from aotlens.partition.rules import Reason
from aotlens.partition.user_names import user_names


@dataclass(frozen=True, slots=True)
class Alternatives:
    """The same joint program under other policies."""

    what_if: tuple[tuple[str, Partitioned], ...] = ()
    """The questions, with the partitions that answer them."""
    unbudgeted: Partitioned | None = None
    """The partition without the memory budget; None where there is none."""
    larger: tuple[Partitioned, ...] = ()
    """The partitions under larger memory budgets."""
    checked: DeadValueCheck | None = None
    """The result of replacing saved values; None where it was not requested."""


def build_partition(parts: Partitioned, others: Alternatives) -> rows.Partition | None:
    """Return the saved and recomputed values with their reasons; None in inference.

    A partition function decides without a `Split`, so its values have no certificates and no frontier.
    """
    if parts.backward is None:
        return None
    split = parts.split
    certificate_by_id = certificates(split) if split is not None else {}
    layers = Layers(parts.joint.program)
    describe = _Saved(parts, certificate_by_id, layers)
    saved = [describe.row(value) for value in parts.saved if isinstance(value.node.val, torch.Tensor)]
    saved.sort(key=lambda value: -value.bytes)
    now = totals(parts)
    return rows.Partition(
        policy=parts.policy,
        saved=tuple(saved),
        recomputed=_recomputed_rows(parts, layers),
        saved_bytes=sum(value.bytes for value in saved),
        frontier=frontier(parts, split) if split is not None else (),
        default_bytes=_default_bytes(parts, split) if split is not None else None,
        budget=_budget(split, now) if split is not None else None,
        unbudgeted=totals(others.unbudgeted) if others.unbudgeted is not None else None,
        larger_budgets=tuple(totals(other) for other in others.larger),
        what_if=tuple(_what_if(change, parts, other, now) for change, other in others.what_if),
        regions=tuple(build_region(region, parts) for region in parts.regions),
        dead_values=others.checked.note if others.checked is not None else None,
    )


def build_answered_partition(parts: Partitioned, others: Alternatives) -> rows.Partition | None:
    """Return the totals and the answers to what-ifs, without the values; None in inference."""
    if parts.backward is None:
        return None
    now = totals(parts)
    answers = tuple(_what_if(change, parts, other, now) for change, other in others.what_if)
    return rows.Partition(parts.policy, (), (), parts.saved_bytes, what_if=answers)


def totals(parts: Partitioned) -> rows.Totals:
    """Return the costs of a partition."""
    flops = sum(value.flops for value in parts.recomputed)
    return rows.Totals(parts.saved_bytes, flops, predicted_peak(parts))


def frontier(parts: Partitioned, split: Split) -> tuple[rows.FrontierPoint, ...]:
    """Return the least work for each number of saved bytes, with the user's overrides."""
    problem = build_problem(parts.joint, split.sides, priced=True, forced=split.choice.forced)
    points = Frontier(problem).points()
    return tuple(rows.FrontierPoint(point.size_bytes, point.flops) for point in points)


def _default_bytes(parts: Partitioned, split: Split) -> int:
    """Return what the policy `default` would save: all that the backward reads."""
    return added_bytes(parts.joint, save_all_reads(parts.joint, split.sides).saved)


def _budget(split: Split, now: rows.Totals) -> rows.BudgetResult | None:
    met = split.choice.budget_solution
    if met is None:
        return None
    return rows.BudgetResult(
        asked_bytes=met.budget_bytes,
        saved_bytes=now.saved_bytes,
        recompute_flops=met.point.flops,
        bound_flops=met.bound_flops,
        exact=met.exact,
        method=met.method,
    )


def _what_if(change: str, parts: Partitioned, other: Partitioned, now: rows.Totals) -> rows.WhatIf:
    before = [value.node.name for value in parts.saved if value.size_bytes]
    after = [value.node.name for value in other.saved if value.size_bytes]
    return rows.WhatIf(
        change=change,
        before=now,
        after=totals(other),
        no_longer_saved=tuple(name for name in before if name not in after),
        newly_saved=tuple(name for name in after if name not in before),
    )


def _recomputed_rows(parts: Partitioned, layers: Layers) -> tuple[rows.RecomputedValue, ...]:
    in_forward = {id(node) for node in parts.forward.nodes}
    return tuple(_recomputed(item, in_forward, layers) for item in parts.recomputed)


def _recomputed(item: Recomputed, in_forward: set[int], layers: Layers) -> rows.RecomputedValue:
    return rows.RecomputedValue(
        node=item.node.name,
        bytes=item.size_bytes,
        flops=item.flops,
        reason=item.reason.text,
        span=item.node.origin.location.innermost,
        code=item.reason.value,
        freedom=freedom_of(item.reason),
        op=item.node.target,
        in_forward=id(item.node) in in_forward,
        overrode=item.overruled,
        layer=layers.layer_of(item.node),
    )


def freedom_of(reason: Reason) -> rows.Freedom:
    return reason.freedom.value


class _Saved:
    """Rows of saved values."""

    def __init__(
        self, parts: Partitioned, certificate_by_id: Mapping[int, Certificate], layers: Layers
    ) -> None:
        assert parts.backward is not None  # called for training only
        self._layers = layers
        self._certificates = certificate_by_id
        self._names = user_names(parts.joint)
        self._policy = parts.policy
        self._hook = type(parts.packing.hooks.pack).__name__ if parts.packing is not None else ""
        self._readers: dict[int, list[rows.Use]] = {}
        for node in parts.backward.nodes:
            for source in dict.fromkeys(id(item) for item in node.inputs()):
                self._readers.setdefault(source, []).append(
                    rows.Use(node.name, node.origin.location.innermost)
                )

    def row(self, value: Saved) -> rows.SavedValue:
        slot: Any = value.owner
        owner: rows.Owner = "output" if value.is_output else "new"
        if slot is not None:
            owner = "parameter" if hasattr(slot, "fqn") else "input"
        named = self._certificates.get(id(value.node))
        return rows.SavedValue(
            node=value.node.name,
            tensor=describe_tensor(value.node.val),
            bytes=value.size_bytes,
            owner=owner,
            reason=self._reason(value),
            span=value.node.origin.location.innermost,
            used_by=tuple(self._readers.get(id(value.node), ())),
            name=slot.name if slot is not None else self._names.get(id(value.node)),
            donated=value.donated,
            code=value.reason.value,
            freedom=freedom_of(value.reason),
            op=value.node.target,
            overrode=value.overruled,
            certificate=certificate_row(named) if named is not None else None,
            layer=self._layers.layer_of(value.node) if slot is None else None,
            packs=value.packs.name if value.packs is not None else None,
        )

    def _reason(self, value: Saved) -> str:
        if value.reason is Reason.PARTITION_FUNCTION:
            return f"chosen by the partition function `{self._policy}`"
        if value.packs is not None:
            return f"the caller's saved-tensor hook `{self._hook}` packs `{value.packs.name}` as this"
        return value.reason.text


def certificate_row(certificate: Certificate) -> rows.Certificate:
    return rows.Certificate(
        above=certificate.above.name if certificate.above is not None else None,
        above_reason=certificate.above_reason.text if certificate.above_reason is not None else "",
        above_span=_span(certificate.above),
        path=tuple(node.name for node in certificate.path),
        below=certificate.below.name if certificate.below is not None else None,
        below_span=_span(certificate.below),
        price_bytes=certificate.price_bytes,
        price_flops=certificate.price_flops,
        instead=tuple(node.name for node in certificate.instead),
        same_as=certificate.same_as.name if certificate.same_as is not None else None,
    )


def _span(node: Node | None) -> rows.Span | None:
    return node.origin.location.innermost if node is not None else None
