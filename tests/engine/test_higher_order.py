"""Higher-order operators beyond the shared list: torch's own database, regions compiled once, the report."""

from typing import Any

import pytest
import torch
import torch.utils._pytree as pytree
from torch import Tensor
from torch._higher_order_ops.map import map_impl
from torch.testing._internal.hop_db import hop_db

from aotlens.compiled import Compiled
from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct, compile_graph_module
from tests.programs import PROGRAMS
from tests.programs.operators.higher_order import flag, region

ELSEWHERE = frozenset(
    {"flex_attention", "flex_attention_backward", "inline_asm_elementwise", "register_hook"}
)
"""On the CPU torch has no eager kernel or no sample for these; the sample of `register_hook` puts its hook on
an input, which is unsupported in a direct call."""

OPERATORS = [op for op in hop_db if op.name not in ELSEWHERE]


def _copy(values: Any, factor: float = 1.0) -> Any:
    def change(value: Any) -> Any:
        if not isinstance(value, Tensor):
            return value
        changed = value.detach() * factor if value.is_floating_point() else value.detach().clone()
        return changed.requires_grad_(value.requires_grad)

    return pytree.tree_map(change, values)


def _results(function: Any, arguments: tuple[Any, ...]) -> list[Tensor | None]:
    """Results, the arguments as they are afterwards, and gradients."""
    results = [leaf for leaf in pytree.tree_leaves(function(*arguments)) if isinstance(leaf, Tensor)]
    leaves = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, Tensor)]
    wanted = [leaf for leaf in leaves if leaf.requires_grad]
    loss = [result.sum() for result in results if result.requires_grad]
    gradients = torch.autograd.grad(loss, wanted, allow_unused=True) if wanted and loss else ()
    return [*results, *leaves, *gradients]


@pytest.mark.rotates
@pytest.mark.parametrize("dynamic", [False, True], ids=["static", "symbolic"])
@pytest.mark.parametrize("op", OPERATORS, ids=lambda op: f"{op.name}-{op.variant_test_name}")
@pytest.mark.filterwarnings("ignore")
def test_torchs_higher_order_operators(op: Any, dynamic: bool) -> None:
    for sample in op.sample_inputs("cpu", torch.float32, requires_grad=op.supports_autograd):

        def function(first: Any, rest: Any, named: Any) -> Any:
            return op.op(first, *rest, **named)

        given = (sample.input, sample.args, sample.kwargs)
        options = CompileOptions(backend="eager", dynamic=dynamic)
        compiled = compile_direct(function, _copy(given), {}, options)
        assert compiled.target().stages
        for factor in (1.0, 0.5):
            expected = _results(function, _copy(given, factor))
            torch.testing.assert_close(_results(compiled.call, _copy(given, factor)), expected)


def _behind_dynamo(function: Any, options: CompileOptions, seen: list[Compiled]) -> Any:
    def backend(gm: Any, example_inputs: Any) -> Any:
        seen.append(compile_graph_module(gm, example_inputs, options))
        return seen[-1].call

    torch._dynamo.reset()
    return torch.compile(function, backend=backend, fullgraph=True)


def _compiled_behind_dynamo(function: Any, *arguments: Any) -> Compiled:
    seen: list[Compiled] = []
    _behind_dynamo(function, CompileOptions(backend="eager"), seen)(*arguments)
    return seen[0]


WITH_GRADIENTS = (
    "cond_with_gradient",
    "cond_reads_from_outside",
    "loop_with_gradient",
    "mapped",
    "scanned",
    "associatively_scanned_generic",
)


@pytest.mark.rotates
@pytest.mark.parametrize("policy", ["min-cut", "default"])
@pytest.mark.parametrize("name", WITH_GRADIENTS)
@pytest.mark.filterwarnings("ignore")
def test_gradients_behind_dynamo_under_both_policies(name: str, policy: str) -> None:
    (program,) = [program for program in PROGRAMS if program.name == f"higher_order/{name}"]
    function, given = program.make(), program.make_args()
    seen: list[Compiled] = []
    compiled = _behind_dynamo(function, CompileOptions(backend="eager", policy=policy), seen)
    for factor in (1.0, 0.5):
        expected = _results(function, _copy(given, factor))
        torch.testing.assert_close(_results(compiled, _copy(given, factor)), expected)
    assert seen[0].parts.policy == policy


def deep(x: Tensor, w: Tensor) -> Tensor:
    for _ in range(4):
        x = region(x, w)
    return x


def _deep() -> Compiled:
    return _compiled_behind_dynamo(deep, *(torch.randn(3, 3, requires_grad=True) for _ in range(2)))


def test_a_marked_region_is_divided_once_for_all_its_calls() -> None:
    compiled = _deep()
    parts = compiled.parts
    assert parts.backward is not None
    assert [len(program.subgraphs()) for program in (parts.forward, parts.backward)] == [1, 1]
    for half in ("subgraph_0_forward", "subgraph_0_backward"):
        assert compiled.source.count(f"def {half}(") == 1
        assert compiled.source.count(f"higher_order_invoke_subgraph({half}, ") == 4


def test_the_report_shows_a_region_its_calls_and_what_each_call_keeps() -> None:
    partition = _deep().target().partition
    assert partition is not None
    (found,) = partition.regions
    assert (found.name, found.reason) == ("subgraph_0", "traced and partitioned once, for 4 calls")
    assert ["region(x, w)" in site.text for site in found.sites] == [True] * 4
    assert [(kept.node, kept.bytes) for kept in found.saved if kept.bytes] == [("cos", 36)]
    (cosine,) = (kept.span for kept in found.saved if kept.bytes)
    assert cosine is not None
    assert cosine.file.endswith("programs/operators/higher_order.py")


def test_branches_stand_in_the_text_as_functions_with_the_users_lines() -> None:
    def function(x: Tensor, flag: Tensor) -> Any:
        return torch.cond(
            flag,
            lambda y: y.sin(),  # the true branch
            lambda y: y.cos(),
            (x,),
        )

    compiled = compile_direct(function, (torch.randn(3), flag()), {}, CompileOptions(backend="eager"))
    assert "def if_true_body(if_true_0):\n    # test_higher_order.py" in compiled.source
    assert "lambda y: y.sin(),  # the true branch\n    sin = aten_sin(if_true_0)" in compiled.source
    assert "higher_order_cond(flag, if_true_body, if_false_body, (x,))" in compiled.source


@pytest.mark.parametrize("policy", ["min-cut", "default"])
def test_a_region_given_by_hand_has_eagers_gradients_under_both_policies(policy: str) -> None:
    def step(x: Tensor, w: Tensor) -> Any:
        return ((x @ w).tanh(), x)

    def function(x: Tensor, w: Tensor) -> Any:
        for _ in range(3):
            x, before = torch.ops.higher_order.invoke_subgraph(step, "step", x, w)
        return x * before

    given = tuple(torch.randn(3, 3, requires_grad=True) for _ in range(2))
    compiled = compile_direct(function, given, {}, CompileOptions(backend="eager", policy=policy))
    assert compiled.source.count("def step_") == 2
    expected = _results(lambda x, w: _unrolled(step, x, w), given)
    torch.testing.assert_close(_results(compiled.call, given), expected)


def _unrolled(step: Any, x: Tensor, w: Tensor) -> Tensor:
    for _ in range(3):
        x, before = step(x, w)
    return x * before


def test_a_second_derivative_of_a_compiled_region_runs_the_original_once_more() -> None:
    x, w = (torch.randn(3, 3, dtype=torch.float64, requires_grad=True) for _ in range(2))
    call = _compiled_behind_dynamo(deep, x, w).call

    def second(function: Any) -> Any:
        out = pytree.tree_leaves(function(x, w))[0]
        (first,) = torch.autograd.grad(out.sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), (x, w))

    torch.testing.assert_close(second(call), second(deep))


def test_a_second_derivative_taken_inside_goes_through_a_region() -> None:
    def penalty(x: Tensor, w: Tensor) -> Tensor:
        def step(x: Tensor, w: Tensor) -> tuple[Tensor]:
            return ((x @ w).tanh(),)

        y = x
        for _ in range(3):
            (y,) = torch.ops.higher_order.invoke_subgraph(step, "step", y, w)
        gradients = torch.autograd.grad(y.sum(), (x, w), create_graph=True)
        return sum(gradient.square().sum() for gradient in gradients) + y.sum()

    def eager(x: Tensor, w: Tensor) -> Tensor:
        y = ((((x @ w).tanh() @ w).tanh()) @ w).tanh()
        gradients = torch.autograd.grad(y.sum(), (x, w), create_graph=True)
        return sum(gradient.square().sum() for gradient in gradients) + y.sum()

    given = tuple(torch.randn(3, 3, requires_grad=True) for _ in range(2))
    compiled = compile_direct(penalty, given, {}, CompileOptions(backend="eager"))
    torch.testing.assert_close(_results(compiled.call, given), _results(eager, given))


@pytest.mark.rotates
@pytest.mark.filterwarnings("ignore")
@torch._dynamo.config.patch(capture_dynamic_output_shape_ops=True)
def test_a_function_with_sizes_out_of_data_has_a_gradient() -> None:
    def chosen(x: Tensor, flag: Tensor) -> Any:
        return torch.cond(flag, lambda y: y.sin()[y > 0].sum() * y, lambda y: y * 2, (x,))

    x, flag = torch.randn(5, requires_grad=True), torch.tensor(True)
    torch._dynamo.reset()
    compiled = torch.compile(chosen, backend="aotlens", options={"backend": "eager"}, fullgraph=True)
    torch.testing.assert_close(_results(compiled, (x, flag)), _results(chosen, (x, flag)))


def test_a_loop_that_returns_a_tensor_from_outside_is_unsupported() -> None:
    def repeated(x: Tensor) -> Any:
        doubled = x * 2
        return map_impl(lambda row: (doubled,), (x,), ())[0]

    with pytest.raises(UnsupportedError) as raised:
        compile_direct(repeated, (torch.ones(3, 2),), {}, CompileOptions(backend="eager"))
    assert raised.value.name == "subgraph-uses-outer-tensor"
