"""Exported graphs and joint graphs beside the ones of torch (BEHAVIOURS.md, group J)."""

from contextlib import ExitStack
from typing import Any

import functorch.compile as peer
import pytest
import torch
from torch._functorch import aot_autograd, config

import aotlens
from aotlens.ir.slots import Gradient, Parameter, Tangent, UserOutput

SIGNATURE = (
    "parameters",
    "buffers",
    "user_inputs",
    "inputs_to_parameters",
    "inputs_to_buffers",
)


class Counts(torch.nn.Module):
    calls: torch.Tensor

    def __init__(self) -> None:
        super().__init__()
        self.fc = torch.nn.Linear(4, 2)
        self.norm = torch.nn.BatchNorm1d(2)
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Any) -> Any:
        self.calls.add_(1)
        return self.norm(self.fc(x)).pow(2).sum(), x.detach() * 2


@pytest.mark.parametrize("trace_joint", [False, True])
def test_module_signature_is_that_of_torch(trace_joint: Any) -> None:
    torch.manual_seed(0)
    mod, x = Counts(), torch.randn(3, 4)
    options = {"trace_joint": trace_joint, "output_loss_index": 0 if trace_joint else None}
    module, ours = aotlens.aot_export_module(mod, (x,), **options)
    other, theirs = aot_autograd.aot_export_module(mod, (x,), **options)
    for key in SIGNATURE:
        assert getattr(ours, key) == getattr(theirs, key), key
    for key in ("buffers_to_mutate", "user_inputs_to_mutate", "parameters_to_mutate"):
        assert list(getattr(ours, key).values()) == list(getattr(theirs, key).values()), key
    assert ours.in_spec == theirs.in_spec
    assert ours.out_spec == theirs.out_spec
    assert len(ours.user_outputs) == len(theirs.user_outputs)
    if trace_joint:
        mine, yours = ours.backward_signature, theirs.backward_signature
        assert mine is not None
        assert yours is not None
        assert list(mine.gradients_to_parameters.values()) == list(yours.gradients_to_parameters.values())
        assert mine.loss_output == ours.user_outputs[0]
    flat = [*mod.parameters(), *mod.buffers(), x]
    for mine, yours in zip(module(*flat), other(*flat), strict=True):
        torch.testing.assert_close(mine, yours)


def test_user_inputs_to_mutate() -> None:
    class Writes(torch.nn.Module):
        def forward(self, x: Any, y: Any) -> Any:
            x.add_(y)
            return y * 2

    module, signature = aotlens.aot_export_module(Writes(), (torch.ones(2), torch.ones(2)), trace_joint=False)
    assert list(signature.user_inputs_to_mutate.values()) == ["arg0_1"]
    assert [r.tolist() for r in module(torch.ones(2), torch.ones(2))] == [[2, 2], [2, 2]]


class Calls(torch.nn.Module):
    def __init__(self, fn: Any) -> None:
        super().__init__()
        self.fn = fn
        self.p = torch.nn.Parameter(torch.ones(4, 4))

    def forward(self, *args: Any) -> Any:
        return self.fn(self.p, *args)


def halves_of_one() -> Any:
    base = torch.ones(4, 4)
    return base[:], base[:]


def one_twice() -> Any:
    base = torch.ones(4, 4)
    return base, base


REFUSED = {
    "metadata": (
        lambda p, x: (x.t_() + p,),
        lambda: (torch.ones(4, 4),),
        "Found an input that received a metadata mutation",
    ),
    "aliases": (
        lambda p, x, y: (x.add_(1) + y + p,),
        halves_of_one,
        "Encountered aliased inputs that are mutated",
    ),
    "duplicates": (
        lambda p, x, y: (x.add_(1) + y + p,),
        one_twice,
        "Encountered duplicated inputs that are mutated in the graph",
    ),
}


@pytest.mark.parametrize("case", REFUSED)
@pytest.mark.parametrize("module", [aotlens, aot_autograd])
def test_refusals(case: Any, module: Any) -> None:
    fn, make, phrase = REFUSED[case]
    with pytest.raises(RuntimeError, match=phrase) as caught:
        module.aot_export_module(Calls(fn), make(), trace_joint=False)
    if module is aotlens:
        assert "`args[0]`" in str(caught.value)
        assert "test_functorch_export.py:" in str(caught.value)


@pytest.mark.parametrize("module", [aotlens, aot_autograd])
def test_other_output_that_requires_grad_is_refused(module: Any) -> None:
    mod = Calls(lambda p: (p.sin().sum(), p * 2))
    phrase = "Found an output of the forward that requires gradients, that was not"
    with pytest.raises(RuntimeError, match=phrase):
        module.aot_export_module(mod, (), trace_joint=True, output_loss_index=0)


@pytest.mark.parametrize("module", [aotlens, aot_autograd])
def test_an_input_that_a_write_makes_require_grad_is_refused(module: Any) -> None:
    def writes(parameter: torch.Tensor, x: torch.Tensor) -> tuple[torch.Tensor]:
        x.mul_(parameter)
        return (x.sum(),)

    phrase = "Found a graph input that requires gradients, and received a mutation"
    with pytest.raises(RuntimeError, match=phrase):
        module.aot_export_module(Calls(writes), (torch.ones(4, 4),), trace_joint=True, output_loss_index=0)


@pytest.mark.parametrize("module", [aotlens, aot_autograd])
def test_functional_rng_is_refused(module: Any) -> None:
    phrase = "Functionalized RNG is not currently supported in the aot_export"
    with config.patch(functionalize_rng_ops=True), pytest.raises(RuntimeError, match=phrase):
        module.aot_export_module(Calls(lambda p: (p * 2,)), (), trace_joint=False)


@pytest.mark.parametrize("module", [aotlens, aot_autograd])
def test_pytrees_are_refused(module: Any) -> None:
    with pytest.raises(RuntimeError, match="requires individual inputs not to be pytrees"):
        module.aot_export_joint_simple(lambda x: [x[0] * 2], [[torch.ones(2)]], trace_joint=False)


@pytest.mark.parametrize("partition", ["ours", "torch"])
def test_joint_simple_is_split_and_run_by_hand(partition: Any) -> None:
    def fn(p: Any, x: Any) -> Any:
        return p.mm(x).cos().sum(), (p * 2).detach()

    torch.manual_seed(0)
    p, x = torch.randn(3, 4, requires_grad=True), torch.randn(4, 3)
    joint = aotlens.aot_export_joint_simple(fn, [p, x], trace_joint=True)
    split = aotlens.default_partition if partition == "ours" else peer.default_partition
    forward, backward = split(joint, [p, x], num_fwd_outputs=2)
    results = forward(p, x)
    torch.testing.assert_close(results[:2], fn(p, x))
    grad, none = backward(*results[2:], torch.ones(()))
    fn(p, x)[0].backward()
    torch.testing.assert_close(grad, p.grad)
    assert none is None


def test_joint_simple_inference() -> None:
    graph = aotlens.aot_export_joint_simple(
        lambda x, y: [x + y], [torch.ones(2), torch.ones(2)], trace_joint=False
    )
    assert graph(torch.ones(2), torch.ones(2))[0].tolist() == [2, 2]


def test_joint_with_descriptors_is_edited_and_compiled() -> None:
    torch.manual_seed(0)
    mod, x = torch.nn.Linear(4, 2), torch.randn(3, 4)
    with ExitStack() as stack:
        jd = aotlens.aot_export_joint_with_descriptors(stack, mod, (x,))
        inputs = jd.graph_module.graph.find_nodes(op="placeholder")
        outputs = jd.graph_module.graph.output_node().meta["desc"]
        assert [type(node.meta["desc"]) for node in inputs[:2]] == [Parameter, Parameter]
        assert isinstance(inputs[-1].meta["desc"], Tangent)
        assert [type(slot) for slot in outputs] == [UserOutput, Gradient, Gradient, Gradient]
        (addmm,) = jd.graph_module.graph.find_nodes(op="call_function", target=torch.ops.aten.addmm.default)
        with jd.graph_module.graph.inserting_after(addmm):
            doubled = jd.graph_module.graph.call_function(torch.ops.aten.mul.Tensor, (addmm, 2))
        doubled.meta = dict(addmm.meta)
        addmm.replace_all_uses_with(doubled, lambda user: user is not doubled)
        jd.graph_module.recompile()
        compiled = aotlens.aot_compile_joint_with_descriptors(jd)
    result = compiled(*mod.parameters(), x)
    torch.testing.assert_close(result, mod(x) * 2)
    result.sum().backward()
    assert mod.bias.grad is not None
    assert mod.bias.grad.tolist() == [3.0, 3.0]


def test_joint_with_descriptors_for_inference() -> None:
    x = torch.ones(2)
    with ExitStack() as stack, torch.no_grad():
        jd = aotlens.aot_export_joint_with_descriptors(stack, Calls(lambda p, x: p[0, 0] + x), (x,))
        compiled = aotlens.aot_compile_joint_with_descriptors(jd)
    assert compiled(torch.ones(4, 4), x).tolist() == [2, 2]


def test_a_serializable_callable_is_refused_and_says_what_to_use() -> None:
    with ExitStack() as stack:
        jd = aotlens.aot_export_joint_with_descriptors(stack, torch.nn.Linear(2, 2), (torch.randn(3, 2),))
        with pytest.raises(
            RuntimeError, match=r"serializable=True.*cannot be written as text.*aotlens.export"
        ):
            aotlens.aot_compile_joint_with_descriptors(jd, serializable=True)


class Tied(torch.nn.Module):
    """A weight at two names, and a module at two."""

    def __init__(self) -> None:
        super().__init__()
        self.a = torch.nn.Linear(2, 2)
        self.b = torch.nn.Linear(2, 2, bias=False)
        self.b.weight = self.a.weight
        self.again = self.a

    def forward(self, x: Any) -> Any:
        return (self.again(self.b(self.a(x))).sum(),)


def every_name(module: Any) -> list[str]:
    return [name for name, _ in module.named_parameters(remove_duplicate=False)]


@pytest.mark.parametrize("trace_joint", [False, True])
def test_a_tied_parameter_is_an_input_by_each_name(trace_joint: bool) -> None:
    module, x = Tied(), torch.ones(1, 2)
    names, held = every_name(module), list(module.modules())
    loss: Any = {"output_loss_index": 0} if trace_joint else {}
    graph, signature = aotlens.aot_export_module(module, (x,), trace_joint=trace_joint, **loss)
    assert signature.parameters == names == every_name(module)
    assert list(module.modules()) == held
    parameters = [*dict(module.named_parameters(remove_duplicate=False)).values()]
    result, *gradients = graph(*parameters, x)
    torch.testing.assert_close(result, module(x)[0])
    if trace_joint:
        wanted = torch.autograd.grad(module(x)[0], module.a.weight)[0]
        weights = [one for name, one in zip(names, gradients, strict=True) if name.endswith("weight")]
        torch.testing.assert_close(sum(weights), wanted)


def test_a_joint_graph_takes_a_tied_parameter_by_each_name() -> None:
    module, x = Tied(), torch.ones(1, 2)
    with ExitStack() as stack:
        joint = aotlens.aot_export_joint_with_descriptors(stack, module, (x,))
        assert joint.params_spec == every_name(module)
        call = aotlens.aot_compile_joint_with_descriptors(joint)
        result = call(*dict(module.named_parameters(remove_duplicate=False)).values(), x)
    found = torch.autograd.grad(result[0], module.a.weight)
    torch.testing.assert_close(found, torch.autograd.grad(module(x)[0], module.a.weight))


@pytest.mark.parametrize("trace_joint", [False, True])
def test_a_tensor_given_twice_as_an_example_is_two_inputs(trace_joint: bool) -> None:
    x = torch.ones(2, requires_grad=True)
    graph = aotlens.aot_export_joint_simple(lambda a, b: [a - b * 2], [x, x], trace_joint=trace_joint)
    given = [torch.ones(2), torch.full((2,), 3.0)]
    found = graph(given, [torch.ones(2)]) if trace_joint else graph(*given)
    (result,), gradients = found if trace_joint else (found, [])
    assert result.tolist() == [-5, -5]
    assert [one.tolist() for one in gradients] == ([[1, 1], [-2, -2]] if trace_joint else [])


def test_a_tied_buffer_that_is_written_to_is_refused() -> None:
    class Counts(torch.nn.Module):
        count: torch.Tensor
        same: torch.Tensor

        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("count", torch.zeros(2))
            self.register_buffer("same", self.count)

        def forward(self, x: Any) -> Any:
            self.count.add_(1)
            return (x * self.same,)

    with pytest.raises(RuntimeError, match="duplicated inputs that are mutated in the graph: `count` and"):
        aotlens.aot_export_module(Counts(), (torch.ones(2),), trace_joint=False)
    with ExitStack() as stack:
        joint = aotlens.aot_export_joint_with_descriptors(stack, Counts(), (torch.ones(2),))
    assert joint.buffers_spec == ["count"]
