"""Graph modules: how they are traced, called and decomposed, and what their nodes carry for compilers."""

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode

from aotlens.torch_api.dispatch import python_dispatcher


def get_decompositions(operators: list[Any]) -> dict[Any, Callable[..., Any]]:
    """Torch's own decompositions of some operators."""
    from torch._decomp import get_decompositions as look_up

    return dict(look_up(operators))


def trace_above_autograd(
    run: Callable[[list[Any]], list[Any]], values: list[Any], updated: list[int], fake_mode: FakeTensorMode
) -> Any:
    """A functional graph of `run`, recorded before autograd: new values of `updated` inputs, then results."""
    from torch._subclasses.functional_tensor import FunctionalTensor, FunctionalTensorMode
    from torch.fx.experimental.proxy_tensor import make_fx

    def unwrapped(value: Any) -> Any:
        if not isinstance(value, FunctionalTensor):
            return value
        torch._sync(value)  # type: ignore[attr-defined]
        return torch._from_functional_tensor(value.elem)

    def functional(*flat: Any) -> tuple[Any, ...]:
        above = torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.Functionalize))
        with above:
            given = [FunctionalTensor.to_functional(v) if isinstance(v, torch.Tensor) else v for v in flat]
            results = run(given)
            return tuple(unwrapped(value) for value in [*(given[at] for at in updated), *results])

    mode = FunctionalTensorMode(pre_dispatch=True, export=True, _allow_token_discovery=True)
    with fake_mode, python_dispatcher(), mode:
        module = make_fx(functional, pre_dispatch=True, record_module_stack=True)(*values)
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            part.graph.eliminate_dead_code()
            part.recompile()
    return module


def set_joint_signature(module: Any, primals: int, tangents: int, results: int) -> None:
    """Let a flat joint graph be called as `module(primals, tangents)`, giving `(results, gradients)`."""
    from torch.fx.graph import _PyTreeCodeGen, _PyTreeInfo

    arguments = pytree.tree_structure(([0] * primals, [0] * tangents))
    given = pytree.tree_structure(([0] * results, [0] * primals))
    module.graph.set_codegen(_PyTreeCodeGen(_PyTreeInfo(["primals", "tangents"], arguments, given)))
    module.recompile()


def tensor_metadata(val: Any) -> Any:
    """What `meta["tensor_meta"]` holds for a value: shape, dtype, strides and so on of each tensor in it."""
    from torch.fx.passes.shape_prop import _extract_tensor_metadata  # only for compilers that ask for it

    if isinstance(val, torch.Tensor):
        return _extract_tensor_metadata(val)
    return type(val)(tensor_metadata(item) for item in val) if isinstance(val, (list, tuple)) else None


def strip_overloads(module: Any) -> None:
    """Call every operator by its overload packet, as TorchScript wants it."""
    for node in module.graph.nodes:
        if isinstance(node.target, OpOverload):
            node.target = node.target.overloadpacket
    module.recompile()


def optimised_script(module: Any) -> Any:
    """A graph module as an optimised TorchScript module; autocast was applied when the graph was traced."""
    before = torch._C._jit_set_autocast_mode(False)
    try:
        scripted = torch.jit.script(module)
        torch._C._jit_pass_remove_mutation(scripted.graph)
        return torch.jit.optimize_for_inference(torch.jit.freeze(scripted.eval()))
    finally:
        torch._C._jit_set_autocast_mode(before)
