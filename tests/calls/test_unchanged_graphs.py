"""Graph modules that a compiler gives back as it got them: our own text runs, until they change."""

from collections.abc import Callable
from typing import Any

import pytest
import torch
from functorch import compile as functorch_compile
from torch import fx

import aotlens

SIN, COS = torch.ops.aten.sin.default, torch.ops.aten.cos.default


def boxed_by_hand(module: fx.GraphModule) -> Callable[[list[Any]], Any]:
    def run(args: list[Any]) -> Any:
        return module(*args)

    run._boxed_call = True  # type: ignore[attr-defined]
    return run


RETURNED: dict[str, Callable[[fx.GraphModule], Any]] = {
    "the module": lambda module: module,
    "its forward": lambda module: module.forward,
    "boxed by aotlens": aotlens.make_boxed_func,
    "boxed by torch": functorch_compile.make_boxed_func,
    "its forward, boxed": lambda module: aotlens.make_boxed_func(module.forward),
    "boxed by the user": boxed_by_hand,
}
"""What a compiler gives back of a graph module; the last is a function that we know nothing of."""


def compiled_with(wrap: Callable[[fx.GraphModule], Any]) -> tuple[Any, fx.GraphModule]:
    """A compiled `x.sin() * 2` after its first call, and the graph module that its compiler got."""
    modules: list[fx.GraphModule] = []

    def keep(module: fx.GraphModule, inputs: Any) -> Any:
        modules.append(module)
        return wrap(module)

    compiled = aotlens.aot_function(lambda x: x.sin() * 2, keep)
    torch.testing.assert_close(compiled(torch.ones(3)), torch.ones(3).sin() * 2)
    return compiled, modules[0]


def use_cosine(module: fx.GraphModule) -> None:
    (node,) = module.graph.find_nodes(op="call_function", target=SIN)
    node.target = COS
    module.recompile()


@pytest.mark.parametrize("wrap", RETURNED)
def test_a_graph_that_is_changed_after_it_was_given_back_runs_as_changed(wrap: str) -> None:
    compiled, module = compiled_with(RETURNED[wrap])
    use_cosine(module)
    result = compiled(torch.ones(3))
    # A `forward` that was taken before the change is the former one, as of any graph module.
    expected = torch.ones(3).sin() if "forward" in wrap else torch.ones(3).cos()
    torch.testing.assert_close(result, expected * 2)


@pytest.mark.parametrize("kind", ["forward hook", "forward pre-hook"])
def test_hooks_that_are_registered_later_run(kind: str) -> None:
    compiled, module = compiled_with(RETURNED["the module"])
    ran: list[str] = []
    register = module.register_forward_hook if kind == "forward hook" else module.register_forward_pre_hook
    register(lambda *_: ran.append(kind))
    compiled(torch.ones(3))
    assert ran == [kind]


def test_a_graph_that_the_compiler_changes_runs_as_changed() -> None:
    def change(module: fx.GraphModule, inputs: Any) -> fx.GraphModule:
        use_cosine(module)
        return module

    torch.testing.assert_close(aotlens.aot_function(torch.sin, change)(torch.ones(3)), torch.ones(3).cos())


def test_an_assigned_forward_runs() -> None:
    compiled, module = compiled_with(RETURNED["the module"])
    module.forward = lambda x: (x + 1,)
    assert torch.equal(compiled(torch.zeros(3)), torch.ones(3))


def test_a_constant_that_is_replaced_is_used() -> None:
    modules: list[fx.GraphModule] = []

    def keep(module: fx.GraphModule, inputs: Any) -> fx.GraphModule:
        modules.append(module)
        return module

    compiled = aotlens.aot_function(lambda x: x + torch.tensor([1.0, 2.0]), keep)
    assert compiled(torch.zeros(2)).tolist() == [1.0, 2.0]
    ((name, _),) = modules[0].named_buffers()
    setattr(modules[0], name, torch.tensor([3.0, 4.0]))
    assert compiled(torch.zeros(2)).tolist() == [3.0, 4.0]


def test_the_python_of_a_graph_is_generated_when_it_is_read() -> None:
    _, module = compiled_with(RETURNED["the module"])
    assert "forward" not in vars(type(module)) or isinstance(vars(type(module))["forward"], property)
    assert "torch.ops.aten.sin.default(arg0_1)" in module.code
    torch.testing.assert_close(module(torch.ones(3))[0], torch.ones(3).sin() * 2)
