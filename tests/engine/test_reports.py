"""The report of each program says what eager does: who is mutated, what aliases what, and where it stands."""

import platform

import pytest
import torch
from torch import Tensor
from torch.testing._internal.two_tensor import TwoTensor

import aotlens
from aotlens.errors import AotlensError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.report.codec import decode, encode
from aotlens.report.records import Input, Output, Report, Target
from aotlens.verify.first_call import observe_alone
from aotlens.verify.left import POSITION
from aotlens.verify.observe import Facts, Observation, Probe
from tests.engine import golden_functions
from tests.engine.checking import prepared
from tests.programs import PROGRAMS, Program

pytestmark = pytest.mark.filterwarnings("ignore")  # programs warn as eager warns

ALIASES = ("alias_of_input", "custom_function_view", "is_input")


def reported(program: Program) -> tuple[Observation, Target] | None:
    """What eager does, and the report's row; None for what fails in eager or is refused."""
    with program.context():
        eager, given = prepared(program)
        seen = observe_alone(eager, Probe(backward=False, writes=False))
        if seen.failure is not None:
            return None
        try:
            compiled = compile_direct(given.fn, given.args, {}, CompileOptions(backend="eager"))
        except AotlensError:
            return None
        return seen, compiled.target()


SAMPLE = [
    program
    for at, program in enumerate(PROGRAMS)
    if at % 2 == 0 or program.name.startswith(("left_behind/", "metadata/view"))
]


@pytest.mark.parametrize("program", SAMPLE, ids=lambda program: program.name)
def test_report_says_what_eager_does(program: Program) -> None:
    both = reported(program)
    if both is None:
        return
    seen, target = both
    wrong = [
        *(text for row, facts in paired_inputs(target, seen) for text in wrong_input(row, facts)),
        *(text for row in own_results(target, seen) for text in wrong_output(row, seen)),
        *wrong_left(target, seen),
        *missing_places(target),
    ]
    assert not wrong, "\n".join([program.name, *wrong])
    report = Report(torch.__version__, platform.python_version(), "test", (target,))
    assert decode(encode(report)) == report


def paired_inputs(target: Target, seen: Observation) -> list[tuple[Input, Facts]]:
    rows = [row for row in target.inputs if row.tensor is not None]
    if len(rows) != len(seen.inputs):  # tensors that a closure holds are no inputs of the report
        return []
    return list(zip(rows, seen.inputs, strict=True))


def wrong_input(row: Input, facts: Facts) -> list[str]:
    found = []
    moved = row.mutates_metadata or row.mutates_storage_metadata
    mutated = row.mutates_data or moved or row.duplicate_of is not None
    if facts.changed and not mutated:
        found.append(f"`{row.name}` changes in eager; the report says that it does not")
    own = "parametrizations." not in row.name  # torch's own code writes there, under no line of the user's
    if mutated and row.duplicate_of is None and not row.sites and own:
        found.append(f"`{row.name}` is mutated, but no site says where")
    if mutated and not row.reason:
        found.append(f"`{row.name}` is mutated without a reason")
    if row.requires_grad and not facts.requires_grad and "history" not in row.reason:
        found.append(f"`{row.name}` requires no grad in eager")
    return found


def own_results(target: Target, seen: Observation) -> tuple[Output, ...]:
    """The results that the caller gets; not where storages are exchanged."""
    if any(row.mutates_storage_metadata for row in target.inputs):
        return ()
    return tuple(row for row in target.outputs if not row.left)


def wrong_output(row: Output, seen: Observation) -> list[str]:
    facts = seen.outputs[row.index]
    if not isinstance(facts, Facts):
        return []
    found = []
    inputs = {item.name for item in seen.inputs}
    if bool(facts.shares & inputs or facts.same_as in inputs) != (row.output_type in ALIASES):
        found.append(f"`{row.name}` is {row.output_type}; in eager it shares memory with {set(facts.shares)}")
    own = row.output_type in ("non_alias", "unsafe_view_alias") or "from outside" in row.reason
    if not own and row.base is None:
        found.append(f"`{row.name}` is {row.output_type} of nothing")
    if row.requires_grad != facts.requires_grad:
        found.append(f"`{row.name}` requires_grad={row.requires_grad}, in eager {facts.requires_grad}")
    return found


def wrong_left(target: Target, seen: Observation) -> list[str]:
    """What the call leaves outside, by the user's name for the place; eager's list has no inputs."""
    rows = [row for row in target.outputs if row.left and row.tensor and row.output_type != "is_input"]
    found = []
    for name, facts in zip(seen.output_names, seen.outputs, strict=True):
        place, is_left, _ = name.partition(", left as ")
        if not is_left or not isinstance(facts, Facts):
            continue
        row = next((row for row in rows if place.endswith(own_name(row))), None)
        if row is None:
            found.append(f"eager leaves `{place}`; the report does not say so")
            continue
        rows.remove(row)
        if row.requires_grad != facts.requires_grad:
            found.append(f"`{row.name}` requires_grad={row.requires_grad}, in eager {facts.requires_grad}")
    named = {at for row in target.left for at in row.outputs}
    found += [
        f"`{row.name}` has no row of its own" for row in target.outputs if row.left != (row.index in named)
    ]
    return found + [f"`{row.place}` is left, but no site says where" for row in target.left if not row.sites]


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


def test_ancestors_are_names_of_the_parent_stage() -> None:
    target = compile_direct(
        golden_functions.running_total,
        (torch.ones(4, requires_grad=True), torch.ones(4)),
        {},
        CompileOptions(backend="eager"),
    ).target()
    stages = [found for stage in target.stages if (found := target.stage(stage.name)) is not None]
    names = {stage.name: {node.name for node in stage.nodes} for stage in stages}
    for stage in stages:
        for node in stage.nodes:
            assert set(node.from_) <= names.get(stage.parent or "", set())
    joint = target.stage("joint")
    assert joint is not None
    backward = {node.name: (node.from_, node.reason) for node in joint.nodes if "gradient of" in node.reason}
    assert backward == {
        "threshold_backward": (("relu",), "part of the gradient of `aten.relu.default`"),
        "mul_1": (("mul",), "part of the gradient of `aten.mul.Tensor`"),
    }
    functional = target.stage("functional")
    assert functional is not None
    assert {node.name: node.from_ for node in functional.nodes if node.op == "call_function"}["add"] == (
        "add",
    )


def test_an_argument_made_to_require_grad_has_its_place() -> None:
    def turned(x: Tensor) -> Tensor:
        x.requires_grad_()
        return x * 3

    (given,) = aotlens.inspect(turned, torch.ones(3)).targets[0].inputs
    assert given.autograd_change == "made to require grad"
    assert [site.text for site in given.sites] == ["x.requires_grad_()"]


def test_higher_order_operators_and_wrappers_are_named() -> None:
    def chosen(x: Tensor, p: Tensor) -> Tensor:
        return torch.cond(p, torch.sin, torch.cos, (x,))

    target = aotlens.inspect(chosen, torch.ones(3), torch.tensor(True)).targets[0]
    (found,) = target.operators
    assert (found.op, found.kind, found.phase) == ("cond", "higher_order", "inference")
    assert [site.text for site in found.sites] == ["torch.cond(p, torch.sin, torch.cos, (x,))"]
    wrapped = aotlens.inspect(torch.sin, TwoTensor(torch.ones(2), torch.ones(2))).targets[0]
    assert wrapped.inputs[0].tensor is not None
    assert wrapped.inputs[0].tensor.subclass == "TwoTensor"
