"""The user's decisions about single values: by name, by source line, or by a function over each value.

Invariant: an override that names nothing, or asks for something incorrect, raises an error with the reason's
code; it is never ignored.
"""

import difflib
import inspect
import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from aotlens.errors import UnknownValueError, UserError
from aotlens.ir.program import Node, getitem
from aotlens.ir.tensor_text import describe_tensor
from aotlens.joint.records import Joint
from aotlens.model.report import Span, Tensor
from aotlens.partition.flops import node_flops
from aotlens.partition.problem import Problem, Value
from aotlens.partition.rules import Decision, Freedom, Reason, has_several_outputs
from aotlens.partition.sides import Sides
from aotlens.partition.storages import is_view, storage_root
from aotlens.policy import Override, Policy

ANSWERS = {"save": Decision.SAVE, "recompute": Decision.RECOMPUTE}


@dataclass(frozen=True, slots=True)
class Candidate:
    """A value as the user's policy function sees it."""

    name: str
    """The node's name: `addmm_3`."""
    variable: str | None
    """The user's variable, where one is known."""
    op: str
    """`aten.addmm.default`."""
    tensor: Tensor
    size_bytes: int
    """The memory that saving it adds."""
    flops: int
    """The cost of recomputing it."""
    spans: tuple[Span, ...]
    """The user's expressions that computed it, innermost first."""


def overridden_values(
    joint: Joint, sides: Sides, policy: Policy, problem: Problem, variables: Mapping[int, str]
) -> dict[int, Decision]:
    """Return the values that the policy's overrides decide, by identity; `variables` are the user's names of
    nodes.

    Raises:
        UserError: an override that names nothing, or a value that has to be the other way; a function that
            answers something else than `save`, `recompute` or None.
    """
    decisions = (
        _function_decisions(policy.function, problem, variables) if policy.function is not None else {}
    )
    named = _NamedValues(joint, sides, variables)
    values = problem.by_identity()
    for override in policy.overrides:
        decision = ANSWERS[override.decision]
        try:
            nodes = named.find(override)
        except UnknownValueError:
            if policy.skips_unknown:
                continue
            raise
        targets = (target for node in nodes for target in _targets(node, decision, joint))
        decided = dict.fromkeys(map(id, targets))
        owned = {id(node): values.get(id(storage_root(node))) for node in nodes}
        rejected = {
            identity: reason
            for identity in decided
            if (reason := _rejection_reason(values.get(identity), owned.get(identity), decision)) is not None
        }
        by_line = ":" in override.what
        if rejected and (not by_line or len(rejected) == len(decided)):
            reason, node = next(iter(rejected.values())), nodes[0]
            raise UserError(
                f"`{override}` is not possible: `{node.name}` is never {_past_tense(decision)}:"
                f" {reason.text} [{reason.value}]",
                span=node.origin.location.innermost,
            )
        decisions |= {value_id: decision for value_id in decided if value_id not in rejected}
    return decisions


def unknown_overrides(
    joint: Joint, sides: Sides, overrides: Iterable[Override], variables: Mapping[int, str]
) -> dict[Override, UnknownValueError]:
    """Return the overrides that name no value of the program, each with its error."""
    named, errors = _NamedValues(joint, sides, variables), {}
    for override in overrides:
        try:
            named.find(override)
        except UnknownValueError as error:
            errors[override] = error
    return errors


def _past_tense(decision: Decision) -> str:
    return "saved" if decision is Decision.SAVE else "recomputed"


def _targets(node: Node, decision: Decision, joint: Joint) -> Iterator[Node]:
    """Yield the values that own a node's memory: the base of a view, or each of several outputs."""
    root = storage_root(node) if decision is Decision.SAVE and is_view(node) else node
    if has_several_outputs(root):
        yield from (other for other in joint.program.nodes if other.op is getitem and other.args[0] is root)
    else:
        yield root


def _rejection_reason(value: Value | None, owner: Value | None, decision: Decision) -> Reason | None:
    """Return why the decision is impossible for the value; `owner` is the value whose storage it is on."""
    if (
        decision is Decision.RECOMPUTE
        and owner is not None
        and owner.save is not None
        and not owner.size_bytes
    ):
        return owner.save if owner.save.freedom is Freedom.FORCED else None
    if value is None:
        return None  # the backward does not need it
    if decision is Decision.RECOMPUTE:
        return value.save if value.save is not None and value.save.freedom is Freedom.FORCED else None
    return value.recompute if value.recompute in (Reason.MAY_CHANGE, Reason.BUNDLE) else None


def _function_decisions(
    function: Callable[[Any], Any], problem: Problem, variables: Mapping[int, str]
) -> dict[int, Decision]:
    """Return the decisions of the user's function about each value that has a choice."""
    decisions = {}
    for value in problem.values:
        forced = [reason for reason in (value.save, value.recompute) if reason is not None]
        if any(reason.freedom is Freedom.FORCED for reason in forced):
            continue
        candidate = _candidate(value, variables)
        answer = _answer(function, candidate)
        if answer is not None and not (isinstance(answer, str) and answer in ANSWERS):
            raise UserError(
                f"the policy function `{getattr(function, '__qualname__', function)}` returned {answer!r}"
                f" for `{candidate.name}`; it must return 'save', 'recompute', or None to leave the choice"
                " to the policy",
                span=value.node.origin.location.innermost,
            )
        if answer is not None:
            decisions[id(value.node)] = ANSWERS[answer]
    return decisions


def _answer(function: Callable[[Any], Any], candidate: Candidate) -> object:
    """Call the user's function with one value; an error inside it propagates unchanged."""
    try:
        inspect.signature(function).bind(candidate)
    except TypeError as error:
        raise UserError(
            f"the policy function `{getattr(function, '__qualname__', function)}` cannot be called with one"
            f" value: {error}; write `def keep(value)`, which returns 'save', 'recompute' or None"
        ) from None
    except ValueError:  # a C function without a signature
        pass
    return function(candidate)


def _candidate(value: Value, variables: Mapping[int, str]) -> Candidate:
    node = value.node
    return Candidate(
        name=node.name,
        variable=variables.get(id(node)),
        op=node.target,
        tensor=describe_tensor(node.val),
        size_bytes=value.size_bytes,
        flops=node_flops(node),
        spans=node.origin.location.spans,
    )


class _NamedValues:
    """The forward's nodes by the names that the user may use."""

    def __init__(self, joint: Joint, sides: Sides, variables: Mapping[int, str]) -> None:
        self._nodes = sides.forward_nodes(joint)
        self._names: dict[str, list[Node]] = {}
        for node in self._nodes:
            self._names.setdefault(node.name, []).append(node)
            if id(node) in variables and variables[id(node)] != node.name:
                self._names.setdefault(variables[id(node)], []).append(node)

    def find(self, override: Override) -> list[Node]:
        """Return the values that an override names.

        Raises:
            UnknownValueError: no value has that name; the message lists similar names.
        """
        if override.what in self._names:
            return self._names[override.what]
        file, separator, line = override.what.rpartition(":")
        if separator and line.isdigit():
            return self._on_line(override, file, int(line))
        raise UnknownValueError(f"`{override}` names no value of the forward{self._nearest(override.what)}")

    def _nearest(self, what: str) -> str:
        """Return a hint: similar names, or the first names that exist."""
        near = difflib.get_close_matches(what, self._names, n=5, cutoff=0.4)
        if near:
            return f"; did you mean {', '.join(f'`{name}`' for name in near)}?"
        names = [f"`{name}`" for name in self._names]
        more = f" and {len(names) - 8} more" if len(names) > 8 else ""
        return f"; its values are {', '.join(names[:8])}{more}" if names else ", which computes no values"

    def _on_line(self, override: Override, file: str, line: int) -> list[Node]:
        """Return the values that a line computes itself, or else those that its calls compute."""
        in_file = {
            node: [span if _is_file(span.file, file) else None for span in node.origin.location.spans]
            for node in self._nodes
            if node.op is not None
        }

        def on_line(depth: int | None) -> list[Node]:
            """Return the nodes of which one of the innermost `depth` expressions is there; None means any."""
            spans_of = ((node, spans[:depth]) for node, spans in in_file.items())
            return [node for node, spans in spans_of if any(_is_on_line(span, line) for span in spans)]

        if nodes := on_line(1) or on_line(None):
            return nodes
        lines = sorted({span.line for spans in in_file.values() for span in spans if span is not None})
        near = ", ".join(map(str, sorted(lines, key=lambda other: abs(other - line))[:5]))
        where = (
            f"; the nearest lines that do are {near}" if near else f"; no value comes from a file `{file}`"
        )
        raise UnknownValueError(
            f"`{override}`: line {line} of {file} computes no value of the forward{where}"
        )


def _is_on_line(span: Span | None, line: int) -> bool:
    return span is not None and span.line <= line <= span.end_line


def _is_file(path: str, file: str) -> bool:
    """Return True if the last parts of a path are the file that the user named."""
    parts, wanted = os.path.normpath(path).split(os.sep), os.path.normpath(file).split(os.sep)
    return parts[-len(wanted) :] == wanted
