"""Compilers that `functorch.compile` offers, and how a compiler of one's own is wrapped.

A compiler takes a `GraphModule` and example inputs and gives a callable over flat arguments, or a *boxed*
one (attribute `_boxed_call`), which takes one list and may empty it.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import fx

from aotlens.frontends.functorch import aot_function, aot_module
from aotlens.frontends.partitioners import min_cut_rematerialization_partition
from aotlens.torch_api.aot import optimised_torchscript, strip_overloads
from aotlens.torch_api.fake import FakeTensor
from aotlens.torch_api.operators import get_decompositions

aten = torch.ops.aten


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """`f` as a callable that takes one list of arguments."""

    def boxed(args: list[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    boxed.__wrapped__ = f  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """A compiler whose results are boxed."""

    @functools.wraps(compiler)
    def boxed_compiler(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return make_boxed_func(compiler(fx_g, inps))

    return boxed_compiler


@make_boxed_compiler
def nop(fx_g: fx.GraphModule, _: Any) -> fx.GraphModule:
    """The graph module itself: runs without compiling anything."""
    return fx_g


@make_boxed_compiler
def print_compile(fx_g: fx.GraphModule, _: Any) -> fx.GraphModule:
    """The graph module itself, after printing its code."""
    print(fx_g.code)  # noqa: T201 (what the caller asked for)
    return fx_g


@make_boxed_compiler
def simple_ts_compile(fx_g: fx.GraphModule, _: Any) -> Any:
    """The graph as a frozen TorchScript module."""
    strip_overloads(fx_g)
    return torch.jit.freeze(torch.jit.script(fx_g).eval())


@make_boxed_compiler
def ts_compile(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Any:
    """The graph as a TorchScript module, optimised for inference."""
    strip_overloads(fx_g)
    for node in fx_g.graph.find_nodes(op="call_function", target=aten._to_copy):
        if len(node.args) == 1 and set(node.kwargs) == {"dtype"}:
            node.target = aten.to
    for node in fx_g.graph.nodes:
        node.kwargs = {
            key: value.type if isinstance(value, torch.device) else value
            for key, value in node.kwargs.items()
        }
    fx_g.graph.lint()
    fx_g.recompile()
    compiled = optimised_torchscript(fx_g)
    if not any(isinstance(value, FakeTensor) for value in inps):
        compiled(*inps)
    return compiled


def nnc_jit(f: Callable[..., Any]) -> Callable[..., Any]:
    """`f` with its graphs compiled by TorchScript."""
    return aot_function(f, simple_ts_compile)


def memory_efficient_fusion(fn: Any, **kwargs: Any) -> Any:
    """A function or module with TorchScript's compiler, min-cut partition and the default decompositions."""
    config: dict[str, Any] = {
        "fw_compiler": ts_compile,
        "bw_compiler": ts_compile,
        "partition_fn": min_cut_rematerialization_partition,
        "decompositions": default_decompositions,
        **kwargs,
    }
    return aot_module(fn, **config) if isinstance(fn, torch.nn.Module) else aot_function(fn, **config)


default_decompositions: dict[Any, Callable[..., Any]] = get_decompositions(
    [
        aten.detach,
        aten.gelu_backward,
        aten.leaky_relu_backward,
        aten.sigmoid_backward,
        aten.threshold_backward,
        aten.hardtanh_backward,
        aten.hardsigmoid_backward,
        aten.hardswish_backward,
        aten.tanh_backward,
        aten.silu_backward,
        aten.elu_backward,
        aten.cudnn_batch_norm,
        aten.cudnn_batch_norm_backward,
        aten.masked_fill.Scalar,
        aten.masked_fill.Tensor,
        aten.elu,
        aten.leaky_relu,
        aten.hardtanh,
        aten.hardswish,
        aten.hardsigmoid,
        aten.conj_physical,
        aten.is_same_size,
    ]
)
"""The decompositions of `memory_efficient_fusion`."""
