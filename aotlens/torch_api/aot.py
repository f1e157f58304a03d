"""Settings and graph forms of ahead-of-time compilation."""

from collections.abc import Callable
from typing import Any

import torch
import torch.utils._pytree as pytree
from torch._ops import OpOverload
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx._lazy_graph_module import _LazyGraphModule as LazyGraphModule

from aotlens.torch_api.graph_text import PyTreeCodeGenWithKeywords
from aotlens.torch_api.operators import python_dispatcher

__all__ = [
    "LazyGraphModule",
    "compiles_backward_at_once",
    "debug_assert",
    "functorch_names",
    "graph_image_format",
    "optimised_torchscript",
    "set_joint_signature",
    "strip_overloads",
    "tensor_metadata",
    "trace_above_autograd",
]


def debug_assert() -> bool:
    """Return True if torch checks at run time what its AOT compiler assumed."""
    from torch._functorch import config  # what the user's program sets, whoever compiles

    return bool(config.debug_assert)


def functorch_names() -> tuple[Any, Any, Any]:
    """Return torch's settings of ahead-of-time compilation, its graph minifier and its decompositions by
    context."""
    from torch._functorch import config
    from torch._functorch.fx_minifier import minifier
    from torch._functorch.python_key import pythonkey_decompose

    return config, minifier, pythonkey_decompose


def graph_image_format() -> str:
    """Return the file format of graph drawings where the file name has none."""
    from torch._functorch import config

    return str(getattr(config, "torch_compile_graph_format", "svg"))


def compiles_backward_at_once() -> bool:
    """Return True if the user's program has each backward compiled together with its forward."""
    from torch._functorch import config

    return bool(getattr(config, "force_non_lazy_backward_lowering", False))


def strip_overloads(module: Any) -> None:
    """Call every operator by its overload packet, as TorchScript wants it."""
    for node in module.graph.nodes:
        if isinstance(node.target, OpOverload):
            node.target = node.target.overloadpacket
    module.recompile()


def optimised_torchscript(module: Any) -> Any:
    """Return a graph module as optimised TorchScript; autocast was applied when the graph was traced."""
    before = torch._C._jit_set_autocast_mode(False)
    try:
        scripted = torch.jit.script(module)
        torch._C._jit_pass_remove_mutation(scripted.graph)
        return torch.jit.optimize_for_inference(torch.jit.freeze(scripted.eval()))
    finally:
        torch._C._jit_set_autocast_mode(before)


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
            functional_inputs = [
                FunctionalTensor.to_functional(v) if isinstance(v, torch.Tensor) else v for v in flat
            ]
            results = run(functional_inputs)
            return tuple(
                unwrapped(value) for value in [*(functional_inputs[index] for index in updated), *results]
            )

    mode = FunctionalTensorMode(pre_dispatch=True, export=True, _allow_token_discovery=True)
    with fake_mode, python_dispatcher({}), mode:
        module = make_fx(functional, pre_dispatch=True, record_module_stack=True)(*values)
    for part in module.modules():
        if isinstance(part, torch.fx.GraphModule):
            part.graph.eliminate_dead_code()
            part.recompile()
    return module


def tensor_metadata(val: Any, known: dict[Any, Any]) -> Any:
    """What `meta["tensor_meta"]` holds for a value: shape, dtype, strides and so on of each tensor in it.

    `known` collects the records, which tensors of one kind share: torch asks Python for each memory format.
    """
    from torch.fx.passes.shape_prop import _extract_tensor_metadata  # only for compilers that ask for it

    if isinstance(val, (list, tuple)):
        return type(val)(tensor_metadata(item, known) for item in val)
    if not isinstance(val, torch.Tensor):
        return None
    if val.layout is not torch.strided or val.is_quantized:
        return _extract_tensor_metadata(val)
    shape, strides = val.shape, val.stride()
    if any(type(number) is not int for number in (*shape, *strides)):
        return _extract_tensor_metadata(val)
    key = (shape, strides, val.dtype, val.requires_grad)
    if key not in known:
        known[key] = _extract_tensor_metadata(val)
    return known[key]


def set_joint_signature(
    module: Any, primals: int, tangents: int, results: tuple[int, int], states: list[str]
) -> None:
    """Let a flat joint graph be called as `module(primals, tangents, *states)`.

    It returns outputs and gradients, whose numbers are the pair `results`.
    """
    from torch.fx.graph import _PyTreeInfo

    arguments = pytree.tree_structure(([0] * primals, [0] * tangents, *[0] * len(states)))
    outputs = pytree.tree_structure(([0] * results[0], [0] * results[1]))
    names = ["primals", "tangents", *states]
    module.graph.set_codegen(PyTreeCodeGenWithKeywords(_PyTreeInfo(names, arguments, outputs)))
    module.recompile()
