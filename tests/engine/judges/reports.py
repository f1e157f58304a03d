"""The report of a program says what eager does: who is mutated, what aliases what, and where it stands."""

import platform

import pytest
import torch

from aotlens.capture.records import AutogradChange
from aotlens.errors import AotlensError
from aotlens.model.codec import decode, encode
from aotlens.model.report import Input, Output, Report, Target
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.verify.observe import Observation, TensorFacts
from aotlens.verify.tensors.retained import POSITION
from tests.engine.checking import EagerRun, prepared

ALIASES = ("alias_of_input", "custom_function_view", "is_input")


def judge_report(eager: EagerRun) -> None:
    """Fail the test where the report says something else than eager's first call shows."""
    program, seen = eager.program, eager.first
    if seen.failure is not None:
        pytest.skip(f"fails in eager: {seen.failure}")
    with program.context():
        _, given = prepared(program)
        try:
            compiled = compile_direct(given.fn, given.args, {}, CompileOptions(backend="eager"))
        except AotlensError as error:
            pytest.skip(f"refused: {error}")
        target = compiled.target()
    wrong = [
        *(text for row, facts in paired_inputs(target, seen) for text in wrong_input(row, facts)),
        *(text for row in own_results(target, seen) for text in wrong_output(row, seen)),
        *wrong_left(target, seen),
        *missing_places(target),
    ]
    assert not wrong, "\n".join([program.name, *wrong])
    report = Report(torch.__version__, platform.python_version(), "test", (target,))
    assert decode(encode(report)) == report


def paired_inputs(target: Target, seen: Observation) -> list[tuple[Input, TensorFacts]]:
    rows = [row for row in target.inputs if row.tensor is not None]
    if len(rows) != len(seen.inputs):  # tensors that a closure holds are no inputs of the report
        return []
    return list(zip(rows, seen.inputs, strict=True))


def wrong_input(row: Input, facts: TensorFacts) -> list[str]:
    found = []
    moved = row.mutates_metadata or row.mutates_storage_metadata
    mutated = row.mutates_data or moved or row.duplicate_of is not None
    if facts.is_mutated and not mutated:
        found.append(f"`{row.name}` changes in eager; the report says that it does not")
    own = "parametrizations." not in row.name  # torch's own code writes there, under no line of the user's
    if mutated and row.duplicate_of is None and not row.sites and own:
        found.append(f"`{row.name}` is mutated, but no site says where")
    if mutated and not row.reason:
        found.append(f"`{row.name}` is mutated without a reason")
    if row.requires_grad and not facts.requires_grad and AutogradChange.DETACHED.value not in row.reason:
        found.append(f"`{row.name}` requires no grad in eager")
    return found


def own_results(target: Target, seen: Observation) -> tuple[Output, ...]:
    """The results that the caller gets; not where storages are exchanged."""
    if any(row.mutates_storage_metadata for row in target.inputs):
        return ()
    return tuple(row for row in target.outputs if not row.is_side_effect)


def wrong_output(row: Output, seen: Observation) -> list[str]:
    facts = seen.outputs[row.index]
    if not isinstance(facts, TensorFacts):
        return []
    found = []
    inputs = {item.name for item in seen.inputs}
    if bool(facts.aliases & inputs or facts.same_as in inputs) != (row.output_type in ALIASES):
        found.append(
            f"`{row.name}` is {row.output_type}; in eager it shares memory with {set(facts.aliases)}"
        )
    own = row.output_type in ("non_alias", "unsafe_view_alias") or "captured" in row.reason
    if not own and row.base is None:
        found.append(f"`{row.name}` is {row.output_type} of nothing")
    if row.requires_grad != facts.requires_grad:
        found.append(f"`{row.name}` requires_grad={row.requires_grad}, in eager {facts.requires_grad}")
    return found


def wrong_left(target: Target, seen: Observation) -> list[str]:
    """What the call leaves outside, by the user's name for the place; eager's list has no inputs."""
    rows = [
        row for row in target.outputs if row.is_side_effect and row.tensor and row.output_type != "is_input"
    ]
    found = []
    for name, facts in zip(seen.output_names, seen.outputs, strict=True):
        place, is_left, _ = name.partition(", left as ")
        if not is_left or not isinstance(facts, TensorFacts):
            continue
        row = next((row for row in rows if place.endswith(own_name(row))), None)
        if row is None:
            found.append(f"eager leaves `{place}`; the report does not say so")
            continue
        rows.remove(row)
        if row.requires_grad != facts.requires_grad:
            found.append(f"`{row.name}` requires_grad={row.requires_grad}, in eager {facts.requires_grad}")
    named = {at for row in target.side_effects for at in row.outputs}
    found += [
        f"`{row.name}` has no row of its own"
        for row in target.outputs
        if row.is_side_effect != (row.index in named)
    ]
    return found + [
        f"`{row.name}` is left, but no site says where" for row in target.side_effects if not row.sites
    ]


def own_name(row: Output) -> str:
    """Without positions in lists, from the attribute on: a partial has other names for its arguments."""
    name = POSITION.sub("[]", row.name)
    return name if "." not in name else name[name.index(".") :]


def missing_places(target: Target) -> list[str]:
    """Nodes that point nowhere without saying which stage added them."""
    return [
        f"{stage.name}: `{node.name}` ({node.target}) has neither a span nor a reason"
        for stage in target.stages
        for node in stage.nodes
        if node.op == "call_function" and not node.spans and not node.reason
    ]
