"""Where a difference begins: a rule, a decomposition or a kernel that a test makes wrong is named."""

import sys
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.testing._internal.two_tensor import TwoTensor

from aotlens.options import CompileOptions
from aotlens.pipeline import compile_direct
from aotlens.verify import Verification, verify_with
from aotlens.verify.locate.stages import compare_stages, replay_stages
from aotlens.verify.tensors.prepared_call import prepare_call
from aotlens.verify.tensors.random_arguments import with_random_values
from tests.programs.program import ints, leaf, plain

aten = torch.ops.aten
EAGER = CompileOptions("eager")


def layer(x: Tensor, w: Tensor) -> Tensor:
    y = torch.sin(x)
    z = functional.gelu(y @ w)
    return z.cos().sum()


def wrong_gelu(x: Tensor, approximate: str = "none") -> Tensor:
    return x * torch.sigmoid(1.5 * x)


def wrong_gelu_backward(grad: Tensor, x: Tensor, approximate: str = "none") -> Tensor:
    return grad * torch.sigmoid(1.5 * x)


def replacing(wrong: Any, right: Any, only: str = "") -> Callable[..., Any]:
    """A backend that takes one operator for another, in graphs that have an input of this name."""

    def backend(module: Any, inputs: object) -> Any:
        names = [node.name for node in module.graph.find_nodes(op="placeholder")]
        for node in module.graph.nodes:
            if node.target is right and any(only in name for name in names):
                node.target = wrong
        module.recompile()
        return module

    return backend


COS_IS_SIN = CompileOptions(replacing(aten.sin.default, aten.cos.default))


def wrapped_leaf(*sizes: int) -> Tensor:
    return TwoTensor(plain(*sizes), plain(*sizes)).requires_grad_()


def checked(options: CompileOptions, fn: Callable[..., Any] = layer) -> Verification:
    torch.manual_seed(0)
    return verify_with(options, fn, (leaf(4, 4), leaf(4, 4)), {})


@pytest.mark.parametrize(
    ("options", "stage", "node", "line"),
    [
        (
            CompileOptions("eager", decompositions={aten.gelu.default: wrong_gelu}),
            "`decomposed`",
            "mul",
            "functional.gelu(y @ w)",
        ),
        (
            CompileOptions("eager", decompositions={aten.gelu_backward.default: wrong_gelu_backward}),
            "`joint`",
            "mul",
            "functional.gelu(y @ w)",
        ),
        (COS_IS_SIN, "generated code", "cos", "z.cos()"),
        (
            CompileOptions(replacing(aten.tan.default, aten.sin.default, only="tangents")),
            "generated code",
            "sin",
            "z.cos()",
        ),
    ],
    ids=["decomposition", "decomposition of a gradient", "kernel", "kernel of the backward"],
)
@pytest.mark.parametrize("make", [leaf, wrapped_leaf], ids=["plain", "wrappers"])
def test_the_first_stage_and_node_are_named(
    options: CompileOptions, stage: str, node: str, line: str, make: Callable[..., Tensor]
) -> None:
    torch.manual_seed(0)
    verification = verify_with(options, layer, (make(4, 4), make(4, 4)), {})
    assert not verification.ok
    first, second, third = verification.where.splitlines()
    assert first.startswith(f"the first stage that differs is {stage}: ")
    assert second.startswith(f"its first node that differs is `{node}")
    assert third.endswith(f": {line}")
    assert f"{__file__.rpartition('/')[2]}:" in third


def counts_and_computes(x: Tensor, w: Tensor, count: Tensor) -> Tensor:
    count.add_(1)
    return (x @ w).sin().cos().sum()


def test_a_write_to_an_input_is_no_node_to_look_for() -> None:
    """The graph writes the count back by a node of its own, which a part of the graph need not have."""
    arguments = (leaf(4, 4), leaf(4, 4), plain(3))
    verification = verify_with(COS_IS_SIN, counts_and_computes, arguments, {})
    first, second, _ = verification.where.splitlines()
    assert first.startswith("the first stage that differs is generated code: ")
    assert second.startswith("its first node that differs is `cos")


def test_generated_code_that_counts_differs_in_no_stage() -> None:
    """A write that the graph does itself is no output of the generated code."""
    arguments = (leaf(4, 4), leaf(4, 4), plain(3))
    options = CompileOptions(backend=lambda module, inputs: module.forward)
    compiled = compile_direct(counts_and_computes, arguments, {}, options)
    results = replay_stages(compiled, list(arguments))
    assert [result.stage for result in results[-2:]] == ["generated code", "wrapper"]
    assert "count after the call" in results[-2].values
    assert compare_stages(results) == ()


def reads_a_value(x: Tensor, w: Tensor) -> Tensor:
    return x * float(COUNTED[0]) + w


COUNTED = [1]


def test_a_recording_that_is_not_what_eager_does_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """The number is built into the recording; eager reads another one from then on."""
    from aotlens.verify import targets

    def then_counted(*args: Any) -> Any:
        compiled = compile_direct(*args)
        monkeypatch.setattr(sys.modules[__name__], "COUNTED", [2])
        return compiled

    monkeypatch.setattr(targets, "compile_direct", then_counted)
    verification = checked(EAGER, reads_a_value)
    first, second, third = verification.where.splitlines()
    assert first.startswith("the first stage that differs is `captured`: ")
    assert second.startswith("its first node that differs is `mul` (aten.mul.Tensor)")
    assert third.endswith(": x * float(COUNTED[0])")


def test_a_function_that_is_not_deterministic_is_said_to_be_so() -> None:
    verification = checked(EAGER, lambda x, w: x * (time.perf_counter_ns() % 9973) + w)
    assert verification.outcome == "not verified"
    assert verification.summary().startswith("not verified (eager differs from eager in the value of out")
    assert not verification.where


def test_what_the_given_arguments_hide_random_ones_show() -> None:
    """The wrong kernel is right for zeros."""
    options = CompileOptions(replacing(aten.tan.default, aten.sin.default))
    torch.manual_seed(0)
    hidden = torch.zeros(4)
    hidden[0] = 1e-6
    verification = verify_with(options, lambda x, w: x.sin() + w, (hidden * 1e-3, plain(4)), {})
    assert verification.ok
    rows = torch.tensor([0, 3])
    table = torch.tensor([0.0, 0.5, 0.6, 0.0])
    verification = verify_with(options, lambda t, i: t[i].sin(), (table, rows), {})
    assert verification.on_random
    assert "on random arguments (equal on the given ones)" in verification.summary()


def test_rounding_is_judged_by_eagers_own_error() -> None:
    """Sums in another order are as good as eager's, although further from it than the tolerance."""

    def reordered(module: Any, inputs: object) -> Any:
        return lambda x: (x.flip(0).reshape(-1, 8).sum(0).sum(),)

    torch.manual_seed(0)
    x = (torch.randn(4096) * 1e6).round()
    x = torch.cat([x, -x.flip(0), torch.tensor([250.0] * 8)])
    verification = verify_with(CompileOptions(reordered), lambda x: x.sum(), (x,), {})
    assert verification.ok, verification.summary()
    assert (
        any("is as near to float64 as eager's" in note for note in verification.notes)
        or not verification.notes
    )


def test_fresh_arguments_keep_what_they_are() -> None:
    torch.manual_seed(0)
    base = leaf(4, 4)
    given = (base, base.t(), ints(5, below=7), torch.tensor([True, False, True]), torch.rand(3), 2)
    (a, b, i, m, p, n) = with_random_values(prepare_call(lambda *args: args, given), seed=1).args
    assert not torch.equal(a, base)
    assert torch.equal(a.t(), b)
    assert b._base is a
    assert a.requires_grad
    assert a.is_leaf
    assert i.dtype == torch.int64
    assert int(i.min()) >= int(given[2].min())
    assert int(i.max()) <= int(given[2].max())
    assert int(m.sum()) == 2
    assert float(p.min()) >= float(given[4].min())
    assert n == 2


class Normed(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)

    def forward(self, x: Tensor) -> Tensor:
        return self.norm(x).relu()


def test_each_round_starts_from_the_same_state() -> None:
    torch.manual_seed(0)
    model = Normed()
    verification = verify_with(EAGER, model, (plain(6, 4),), {})
    assert verification.ok, verification.summary()
    assert verification.fresh_rounds == 1
    assert model.norm.num_batches_tracked is not None
    assert int(model.norm.num_batches_tracked) == 0
