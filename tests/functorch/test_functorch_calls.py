"""`aot_function`, `aot_module`, `aot_module_simplified` beside the ones of `functorch.compile` (A, B, H)."""

import copy
import operator
from decimal import Decimal
from fractions import Fraction
from typing import Any

import functorch.compile as peer
import numpy as np
import pytest
import torch
from torch._functorch import config

import aotlens
from aotlens.errors import UnsupportedError
from aotlens.options import CompileOptions
from aotlens.torch_api.fake.tensors import FakeTensorMode
from aotlens.torch_api.operators import pytree
from aotlens.torch_api.symbolic import make_shape_env

PARTITIONS: dict[str, tuple[Any, Any]] = {
    "default": (aotlens.default_partition, peer.default_partition),
    "min-cut": (aotlens.min_cut_rematerialization_partition, peer.min_cut_rematerialization_partition),
}


class Seen:
    """A compiler that keeps the graphs it was given."""

    def __init__(self) -> None:
        self.graphs: list[Any] = []

    def __call__(self, module: Any, inputs: Any) -> Any:
        self.graphs.append(module)
        assert len(module.graph.find_nodes(op="placeholder")) == len(inputs)
        return aotlens.make_boxed_func(module)

    @property
    def shapes(self) -> Any:
        """(number of inputs, number of outputs) of each graph."""
        return [
            (len(module.graph.find_nodes(op="placeholder")), len(module.graph.output_node().args[0]))
            for module in self.graphs
        ]

    @property
    def names(self) -> Any:
        return [[node.name for node in module.graph.find_nodes(op="placeholder")] for module in self.graphs]


def leaves(*shapes: Any) -> Any:
    torch.manual_seed(0)
    return [torch.randn(*shape, requires_grad=True) for shape in shapes]


def layer_norm(x: Any, weight: Any, bias: Any) -> Any:
    return torch.nn.functional.layer_norm(x, [4], weight, bias)


def cos_chain(x: Any) -> Any:
    return x.cos().cos().cos()


def cat_mm(x: Any, y: Any) -> Any:
    return torch.cat([x, y]).mm(x.t()) * y.shape[0], y.shape[1]


def mixed(x: Any, n: Any, y: Any, none: Any) -> Any:
    return x * n, {"y": [y.sin(), none]}, (y, x.view(-1))


CASES: dict[str, tuple[Any, Any]] = {
    "layer_norm": (layer_norm, lambda: leaves((3, 4), (4,), (4,))),
    "cos_chain": (cos_chain, lambda: leaves((3, 4))),
    "cat_mm": (cat_mm, lambda: leaves((3, 4), (2, 4))),
    "mixed": (mixed, lambda: [leaves((3, 4))[0], 3, leaves((2,))[0], None]),
}


def first_tensor(result: Any) -> Any:
    return next(t for t in pytree.tree_leaves(result) if isinstance(t, torch.Tensor))


def assert_same(left: Any, right: Any) -> None:
    (ours, spec), (theirs, other) = pytree.tree_flatten(left), pytree.tree_flatten(right)
    assert spec == other
    for mine, yours in zip(ours, theirs, strict=True):
        if isinstance(mine, torch.Tensor):
            torch.testing.assert_close(mine, yours)
        else:
            assert mine == yours


@pytest.mark.parametrize("partition", PARTITIONS)
@pytest.mark.parametrize("case", CASES)
def test_graphs_have_the_inputs_and_outputs_of_torch(case: Any, partition: Any) -> None:
    fn, make = CASES[case]
    ours, theirs = PARTITIONS[partition]
    found, values = [], []
    for entry, partition_fn in ((aotlens.aot_function, ours), (peer.aot_function, theirs)):
        forward, backward = Seen(), Seen()
        args = make()
        result = entry(fn, forward, backward, partition_fn)(*args)
        tensors = (one for one in pytree.tree_leaves(result) if isinstance(one, torch.Tensor))
        torch.stack([one.sum() for one in tensors]).sum().backward()  # of some alone, torch's gives zeros
        grads = [arg.grad for arg in args if isinstance(arg, torch.Tensor)]
        found.append((forward.shapes[0][0], backward.shapes[0][1], forward.names))
        values.append((pytree.tree_leaves(result), grads))
        if entry is aotlens.aot_function:
            assert_same(result, fn(*make()))
    assert found[0] == found[1]
    assert_same(values[0], values[1])


@pytest.mark.parametrize("case", ["layer_norm", "cos_chain"])
def test_forward_and_backward_fit_together(case: Any) -> None:
    fn, make = CASES[case]
    forward, backward = Seen(), Seen()
    other_forward, other_backward = Seen(), Seen()
    aotlens.aot_function(fn, forward, backward)(*make()).sum().backward()
    peer.aot_function(fn, other_forward, other_backward)(*make()).sum().backward()
    assert forward.shapes == other_forward.shapes
    assert backward.shapes == other_backward.shapes


@pytest.mark.parametrize("source", ["aotlens", "torch"])
def test_partition_function_of_ones_own(source: Any) -> None:
    chosen = aotlens if source == "aotlens" else peer
    called = []

    def partition(joint: Any, inputs: Any, **kwargs: Any) -> Any:
        called.append([node.name for node in joint.graph.find_nodes(op="placeholder")])
        assert kwargs["num_fwd_outputs"] == 1
        return chosen.min_cut_rematerialization_partition(joint, inputs, **kwargs)

    (x,) = leaves((3, 4))
    (y,) = leaves((3, 4))
    aotlens.aot_function(cos_chain, aotlens.nop, partition_fn=partition)(x).sum().backward()
    cos_chain(y).sum().backward()
    assert called == [["primals_1", "tangents_1"]]
    torch.testing.assert_close(x.grad, y.grad)


@pytest.mark.parametrize(
    "answer", [None, (torch.fx.Graph(),), (1, 2), "graphs"], ids=["None", "one graph", "numbers", "a word"]
)
def test_partition_function_that_answers_something_else(answer: Any) -> None:
    def partition(joint: Any, inputs: Any, **kwargs: Any) -> Any:
        return answer

    message = r"the partition function `partition` returned \w+ \(.*\); it must return two graph modules"
    with pytest.raises(aotlens.AotlensError, match=message):
        aotlens.aot_function(cos_chain, aotlens.nop, partition_fn=partition)(*leaves((3, 4)))


def test_inference_graph_when_nothing_requires_grad() -> None:
    train, inference = Seen(), Seen()
    fn = aotlens.aot_function(lambda x, y: (x + y, x), train, inference_compiler=inference)
    x = torch.ones(2)
    a, b = fn(x, x.clone())
    assert b is x
    assert a.tolist() == [2, 2]
    assert train.graphs == []
    assert inference.names == [["arg0_1", "arg1_1"]]
    with torch.no_grad():
        aotlens.aot_function(lambda x: x * 2, train, inference_compiler=inference)(x.requires_grad_())
    assert train.graphs == []
    assert len(inference.graphs) == 2


def test_every_node_but_the_output_carries_tensor_meta() -> None:
    def fn(x: Any) -> Any:
        y = x.sin()
        y.add_(1)
        return y.split(2)[0].cos()

    forward, backward = Seen(), Seen()
    aotlens.aot_function(fn, forward, backward)(leaves((4, 2))[0]).sum().backward()
    for module in (*forward.graphs, *backward.graphs):
        for node in module.graph.nodes:
            assert node.op == "output" or "tensor_meta" in node.meta, node
    (sin, *_) = forward.graphs[0].graph.find_nodes(op="call_function", target=torch.ops.aten.sin.default)
    assert sin.meta["original_aten"] is torch.ops.aten.sin.default
    assert "y = x.sin()" in sin.meta["stack_trace"]


def test_a_part_of_several_results_names_the_operator() -> None:
    seen = Seen()
    aotlens.aot_function(lambda x: torch.sort(x)[0] * 2, seen)(torch.ones(3))
    (part,) = seen.graphs[0].graph.find_nodes(op="call_function", target=operator.getitem)
    assert part.meta["original_aten"] is torch.ops.aten.sort.default


def test_a_comparison_of_sizes_among_the_results_is_known_behind_dynamo() -> None:
    def function(x: Any, y: Any) -> Any:
        return (x + y if x.shape == y.shape else x), x.shape[0] == y.shape[0]

    torch.compiler.reset()
    backend = aotlens.aot_autograd(fw_compiler=aotlens.nop)
    compiled = torch.compile(function, dynamic=True, backend=backend)
    for one, other in ((3, 3), (4, 4), (3, 4), (5, 2)):
        found, same = compiled(torch.ones(one), torch.ones(other))
        assert (found.tolist(), same) == ([1.0 + (one == other)] * one, one == other)


def test_other_shapes_and_other_patterns_compile_anew() -> None:
    seen = Seen()
    fn = aotlens.aot_function(lambda x, y: x.mul_(2) + y, seen)
    assert fn(torch.ones(2), torch.ones(2)).tolist() == [3, 3]
    assert fn(torch.ones(3), torch.ones(3)).tolist() == [3, 3, 3]
    assert fn(torch.ones(2), torch.ones(2)).tolist() == [3, 3]
    x = torch.ones(2)
    assert fn(x, x).tolist() == [4, 4]
    assert len(seen.graphs) == 3


def test_dynamic_serves_other_sizes() -> None:
    forward, backward = Seen(), Seen()
    fn = aotlens.aot_function(cat_mm, forward, backward, dynamic=True)
    for rows in (5, 7, 9):
        x, y = leaves((rows, 4), (rows + 1, 4))
        result, size = fn(x, y)
        assert size == 4
        torch.testing.assert_close(result, cat_mm(x, y)[0])
        result.sum().backward()
    assert len(forward.graphs) == len(backward.graphs) == 1


def test_compilers_may_return_a_graph_module_a_callable_or_a_boxed_one() -> None:
    boxed = lambda module, inputs: aotlens.make_boxed_func(module.forward)
    for compiler in (
        lambda m, i: m,
        lambda m, i: m.forward,
        boxed,
        aotlens.make_boxed_compiler(lambda m, i: m),
    ):
        (x,) = leaves((3,))
        aotlens.aot_function(cos_chain, compiler)(x).sum().backward()
        assert x.grad is not None


@pytest.mark.filterwarnings("ignore:The TorchScript type system:UserWarning")
def test_script_compilers() -> None:
    (x, y) = leaves((3,), (3,))
    expected = torch.autograd.grad(cos_chain(x * y).sum(), (x, y))
    for fn in (
        aotlens.nnc_jit(lambda x, y: cos_chain(x * y)),
        aotlens.memory_efficient_fusion(lambda x, y: cos_chain(x * y)),
    ):
        torch.testing.assert_close(torch.autograd.grad(fn(x, y).sum(), (x, y)), expected)


def test_dict_that_the_function_fills_is_returned_as_eager_does() -> None:
    def fn(inputs: Any) -> Any:
        inputs["b"] = inputs["a"] * 2
        return inputs

    result = aotlens.aot_function(fn, aotlens.nop)({"a": torch.ones(2)})
    assert list(result) == ["a", "b"]
    assert result["b"].tolist() == [2, 2]


def test_a_buffer_that_was_none_is_seen_at_the_next_call() -> None:
    class Scaled(torch.nn.Module):
        scale: torch.Tensor | None

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("scale", None)

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 2 if self.scale is None else x * self.scale

    layer, x = Scaled(), torch.ones(2)
    compiled = aotlens.aot_module(layer, aotlens.nop)
    for scale in (None, torch.full((2,), 5.0), None):
        layer.scale = scale
        assert torch.equal(compiled(x), x * (2 if scale is None else 5))


def test_module_gradients_and_buffers() -> None:
    torch.manual_seed(0)
    mod = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    other = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.BatchNorm1d(4))
    other.load_state_dict(mod.state_dict())
    x = torch.randn(5, 3)
    compiled = aotlens.aot_module(mod, aotlens.nop)
    for _ in range(2):
        compiled(x).pow(2).sum().backward()
        other(x).pow(2).sum().backward()
    torch.testing.assert_close(dict(mod.state_dict()), dict(other.state_dict()))
    torch.testing.assert_close([p.grad for p in mod.parameters()], [p.grad for p in other.parameters()])
    mod.eval(), other.eval()
    torch.testing.assert_close(compiled(x), other(x))
    with torch.inference_mode():
        torch.testing.assert_close(compiled(x), other(x))


@pytest.mark.parametrize("fake", [False, True])
def test_module_simplified_is_flat(fake: Any) -> None:
    torch.manual_seed(0)
    mod = torch.nn.Linear(3, 4)
    x = torch.randn(5, 3)
    mode = FakeTensorMode(shape_env=make_shape_env())
    args = (mode.from_tensor(x),) if fake else (x,)
    compiled: Any = aotlens.aot_module_simplified(mod, args, aotlens.nop)
    (result,) = compiled(x)
    torch.testing.assert_close(result, mod(x))
    result.sum().backward()
    assert mod.weight.grad is not None
    assert [name for name, _ in compiled.named_parameters()] == ["weight", "bias"]


def test_foreign_fake_constant_is_refused() -> None:
    mode = FakeTensorMode()
    x, z = mode.from_tensor(torch.randn(2)), mode.from_tensor(torch.randn(2))

    class Closes(torch.nn.Module):
        def forward(self, x: Any) -> Any:
            return (x + z,)

    with pytest.raises(AssertionError, match="Unexpected fake"):
        aotlens.aot_module_simplified(Closes(), (x,), aotlens.nop)


def test_parameters_in_nested_dicts() -> None:
    mod = torch.nn.Linear(3, 4)
    named = dict(mod.named_parameters())

    def fn(params: Any, x: Any) -> Any:
        return torch.func.functional_call(mod, params, (x,))

    x = torch.randn(5, 3)
    result = aotlens.aot_function(fn, aotlens.nop, num_params_buffers=len(named))(named, x)
    torch.testing.assert_close(result, mod(x))
    result.sum().backward()
    assert mod.bias.grad is not None
    assert mod.bias.grad.tolist() == [5.0] * 4


class Moves(torch.nn.Module):
    def forward(self, x: Any, y: Any) -> Any:
        x.t_()
        y.unsqueeze_(0)
        return (x + y,)


@pytest.mark.parametrize("fake", [False, True])
def test_debug_assert_refuses_other_duplicates(fake: Any) -> None:
    def square() -> Any:
        return torch.randn(3, 3, requires_grad=True).clone()

    def examples(*tensors: Any) -> Any:
        mode = FakeTensorMode()
        return tuple(mode.from_tensor(t) for t in tensors) if fake else tensors

    x = square()
    apart = aotlens.aot_module_simplified(Moves(), examples(square(), square()), aotlens.nop)
    same = aotlens.aot_module_simplified(Moves(), examples(x, x), aotlens.nop)
    with config.patch(debug_assert=True):
        apart(square(), square())
        x, y = square(), square()
        apart(x, x)
        phrase = "under the assumption that input 1 would be a duplicate of input 0"
        with pytest.raises(AssertionError, match=phrase):
            same(square(), y)


def test_debug_assert_takes_what_was_one_tensor_and_is_not_written_to() -> None:
    fn = aotlens.aot_function(lambda x, y: x - y * 2, aotlens.nop)
    x = torch.ones(2)
    with config.patch(debug_assert=True):
        fn(x, x)
        assert fn(x, torch.zeros(2)).tolist() == [1, 1]


class Counting(torch.nn.Module):
    """A buffer, and an attribute that is its tensor."""

    count: torch.Tensor

    def __init__(self, writes: bool) -> None:
        super().__init__()
        self.register_buffer("count", torch.zeros(2))
        self.same = self.count
        self.writes = writes

    def forward(self, x: Any) -> Any:
        if self.writes:
            self.count.add_(1)
        return self.same * x + self.count


def test_a_buffer_that_is_also_an_attribute() -> None:
    written = aotlens.aot_module(Counting(writes=True), aotlens.nop)
    assert [written(torch.ones(2)).tolist() for _ in range(2)] == [[2, 2], [4, 4]]
    kept = Counting(writes=False)
    compiled = aotlens.aot_module(kept, aotlens.nop)
    for now in (0.0, 2.0):
        kept.count.fill_(now)
        assert compiled(torch.ones(2)).tolist() == [2 * now] * 2


def test_debug_assert_refuses_a_new_gradient() -> None:
    fn = aotlens.aot_function(lambda x, y: (x + y, y * 1), aotlens.nop)
    x, y = torch.ones(2, requires_grad=True), torch.ones(2)
    fn(x, y)
    with config.patch(debug_assert=True):
        fn(x.detach(), y)
        phrase = "input 1 would not require grad, but at runtime this was not the case: `y` does"
        with pytest.raises(AssertionError, match=phrase):
            fn(x, y.clone().requires_grad_())
    fn(x, y.requires_grad_())[1].sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == [1, 1]


@pytest.mark.parametrize("keep", [False, True])
def test_mutation_hidden_from_autograd_stays_in_the_graph_when_asked(keep: Any) -> None:
    def fn(x: Any, y: Any) -> Any:
        with torch.no_grad():
            x.mul_(2)
        return x * y

    forward = Seen()
    compiled = aotlens.aot_function(fn, forward, keep_inference_input_mutations=keep)
    x, y = torch.ones(2), torch.ones(2, requires_grad=True)
    result = compiled(x, y)
    assert x.tolist() == [2, 2]
    assert result.grad_fn.name() == "CompiledFunctionBackward"
    copies = forward.graphs[0].graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    assert len(copies) == int(keep)
    result.sum().backward()
    assert y.grad is not None
    assert y.grad.tolist() == [2, 2]


def test_mutation_that_autograd_sees_is_a_result_of_the_graph() -> None:
    forward = Seen()
    compiled = aotlens.aot_function(lambda x: x.mul_(2).sin(), forward, keep_inference_input_mutations=True)
    leaf = torch.ones(2, requires_grad=True)
    x = leaf.clone()
    compiled(x).sum().backward()
    assert x.tolist() == [2, 2]
    assert not forward.graphs[0].graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)
    torch.testing.assert_close(leaf.grad, 2 * torch.cos(torch.full((2,), 2.0)))


def test_batch_norm_in_eval_mode_leaves_no_copy() -> None:
    forward = Seen()
    mod = torch.nn.BatchNorm1d(3).eval()
    aotlens.aot_module(mod, forward, keep_inference_input_mutations=True)(torch.randn(2, 3))
    assert not forward.graphs[0].graph.find_nodes(op="call_function", target=torch.ops.aten.copy_.default)


def test_size_is_saved_as_a_number_for_a_sum() -> None:
    forward, backward = Seen(), Seen()
    fn = aotlens.aot_function(
        lambda x: x.sum(),
        forward,
        backward,
        aotlens.min_cut_rematerialization_partition,
        dynamic=True,
    )
    fn(torch.randn(5, 7, requires_grad=True)).backward()
    saved = forward.graphs[0].graph.output_node().args[0][1:]
    assert all(not isinstance(node.meta["val"], torch.Tensor) for node in saved)
    assert len(backward.graphs) == 1


def test_saved_values_named_like_builtins() -> None:
    def fn(x: Any, y: Any) -> Any:
        return x.sum().sin() * y.sum().exp() * x.abs() * y.abs()

    grads = []
    for entry in (lambda fn, _: fn, aotlens.aot_function):
        x, y = leaves((3,), (3,))
        entry(fn, aotlens.nop)(x, y).sum().backward()
        grads.append((x.grad, y.grad))
    torch.testing.assert_close(grads[0], grads[1])


@pytest.mark.parametrize(
    "calls",
    [
        [(torch.ones(4, 3), torch.float32), (torch.ones(4, 3), torch.float64)],
        [(torch.ones(3, 4).t(), {1}), (torch.ones(4, 3), {1}), (torch.ones(4, 3), {2, 3})],
    ],
    ids=["dtypes", "strides and sets"],
)
def test_later_call_of_another_kind(calls: list[Any]) -> None:
    def fn(x: Any, other: Any) -> Any:
        flat = x.reshape(-1)  # a view of `x`, or a copy
        flat.add_(1)
        return x * len(other) if isinstance(other, set) else x.to(other)

    compiled = aotlens.aot_function(fn, aotlens.nop)
    for x, other in calls:
        mine, wanted = x.clone(), x.clone()
        torch.testing.assert_close(compiled(mine, other), fn(wanted, other))
        torch.testing.assert_close(mine, wanted)


def test_later_call_under_autocast() -> None:
    compiled = aotlens.aot_function(lambda x: x @ x, aotlens.nop)
    x = torch.randn(3, 3)
    assert compiled(x).dtype is torch.float32
    with torch.autocast("cpu", torch.bfloat16):
        assert compiled(x).dtype is torch.bfloat16
    assert compiled(x).dtype is torch.float32


def test_a_part_of_a_module_changes_its_mode() -> None:
    torch.manual_seed(0)
    module = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.BatchNorm1d(4))
    compiled = aotlens.aot_module(module, aotlens.nop)
    x = torch.randn(3, 4)
    compiled(x)
    module[1].eval()
    torch.testing.assert_close(compiled(x), module(x))


class Scale:
    def __init__(self, by: Any) -> None:
        self.by = by


def of_argument(x: Any, given: Any) -> Any:
    match given["value"]:
        case slice(start=by) | Scale(by=by):
            return x * by
        case str() | bytes() | range() as sized:
            return x * len(sized)
        case torch.dtype() as dtype:
            return x.to(dtype)
        case None:
            return x
        case value if callable(value):
            return value(x)
        case complex() as by:
            return x * by
        case value:
            return x * float(value if value is not ... else 7)


def test_a_value_among_the_arguments_is_built_in_for_itself_alone() -> None:
    """Numbers of all kinds, bytes, ranges, functions: each call is checked for its own."""
    values = [
        *(2j, 3j, 2.0, 3.0, 2, True, np.float32(2), np.float32(3), np.int64(3), float("nan")),
        *(Fraction(1, 2), Fraction(1, 3), Decimal("1.5"), Decimal("2.5"), "ab", b"ab", b"abc", None, ...),
        *(range(3), range(4), slice(1, 2), slice(3, 4), torch.sin, torch.cos, torch.float64, torch.int32),
        *(lambda x: x * 2, lambda x: x * 3, Scale(2), Scale(3)),
    ]
    compiled = aotlens.aot_function(of_argument, aotlens.nop)
    x = torch.arange(1.0, 3.0)
    for value in [*values, *reversed(values)]:
        found, wanted = compiled(x, {"value": value}), of_argument(x, {"value": value})
        torch.testing.assert_close(found, wanted, rtol=0, atol=0, equal_nan=True)


def scaled(x: Any, scale: Any) -> Any:
    held = scale.by
    return x * (held if isinstance(held, torch.Tensor) else 2)


@pytest.mark.parametrize("held", [torch.ones(2), [1.0], Scale(2)], ids=["tensor", "list", "object"])
def test_an_object_that_no_call_can_check_is_refused(held: Any) -> None:
    """As torch refuses it; `aotlens.compile` looks into it at each call."""
    compiled = aotlens.aot_function(scaled, aotlens.nop)
    with pytest.raises(AssertionError, match="all flat_args must be KNOWN_TYPES"):
        compiled(torch.ones(2), Scale(held))


def under_enable_grad(x: Any, y: Any) -> Any:
    with torch.enable_grad():
        own = y.detach().requires_grad_() * 2
        inside = x * 2
    return x * y, own, inside


@pytest.mark.parametrize("grad", [False, True])
def test_grad_mode_is_checked_where_the_function_turns_it_on_itself(grad: bool) -> None:
    compiled = aotlens.aot_function(under_enable_grad, aotlens.nop)
    modes = (torch.enable_grad, torch.no_grad, torch.inference_mode)
    for mode in (*modes, *reversed(modes)):
        x, y = torch.randn(2, requires_grad=grad), torch.randn(2)
        with mode():
            found, wanted = compiled(x, y), under_enable_grad(x, y)
        facts = [[(t.requires_grad, t.is_leaf, t.is_inference()) for t in one] for one in (found, wanted)]
        assert facts[0] == facts[1], mode


def test_grad_mode_is_not_checked_where_the_function_only_turns_it_off() -> None:
    def function(x: Any, buffer: Any) -> Any:
        with torch.no_grad():
            buffer.add_(1)
        return x * buffer

    seen = Seen()
    compiled = aotlens.aot_function(function, seen)
    x = torch.ones(2, requires_grad=True)
    compiled(x, torch.ones(2))
    with torch.no_grad():
        compiled(x, torch.ones(2))
    assert len(seen.graphs) == 1


LAZY = "a lazy module without its parameters .`weight`.*call it once before"


@pytest.mark.parametrize("whole", [True, False])
def test_a_lazy_layer_makes_its_parameters_before(whole: bool) -> None:
    layer, x = torch.nn.LazyLinear(2), torch.ones(3)
    fn: Any = aotlens.aot_module(layer, aotlens.nop) if whole else None
    fn = fn or aotlens.aot_function(lambda x: layer(x), aotlens.nop)  # noqa: PLW0108 (a closure)
    with pytest.raises(UnsupportedError, match=LAZY):
        fn(x)
    layer(x)
    torch.testing.assert_close(fn(x), layer(x))


@pytest.mark.filterwarnings("ignore:Sparse CSR tensor support is in beta")
def test_a_sparse_tensor_that_a_compiled_function_closes_over() -> None:
    adjacency, x = torch.eye(3).to_sparse_csr(), torch.rand(3, 3)
    eager = CompileOptions(backend="eager")
    torch.testing.assert_close(aotlens.compile(lambda x: adjacency @ x, options=eager)(x), x)


def test_a_copy_of_a_module_has_buffers_of_its_own() -> None:
    layer: Any = torch.nn.BatchNorm1d(3)
    compiled, x = aotlens.aot_module(layer, aotlens.nop), torch.randn(5, 3)
    compiled(x)
    copied: Any = copy.deepcopy(compiled)
    copied(x + 1)
    assert (int(layer.num_batches_tracked), int(copied.orig_module.num_batches_tracked)) == (1, 2)
    copied.eval()
    compiled(x)
    assert torch.equal(copied(x), copied.orig_module(x))
    assert int(copied.orig_module.num_batches_tracked) == 2
