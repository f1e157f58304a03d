"""Compilers of `functorch.compile` (nop, TorchScript, drawing), torch's tools, and boxed wrappers."""

import copy
import functools
import os
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import fx
from torch.fx.passes.graph_drawer import FxGraphDrawer

from aotlens.errors import UserError
from aotlens.frontends.functorch import aot_function
from aotlens.frontends.functorch_module import aot_module
from aotlens.partition.graph_modules import min_cut_rematerialization_partition
from aotlens.torch_api.aot import functorch_names, graph_image_format, optimised_torchscript, strip_overloads
from aotlens.torch_api.fake.tensors import FakeTensor
from aotlens.torch_api.operators import get_decompositions

config, minifier, pythonkey_decompose = functorch_names()


aten = torch.ops.aten


def make_boxed_func(f: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Wrap `f` as a callable that takes one list of arguments."""

    def boxed(args: list[Any]) -> Any:
        return f(*args)

    boxed._boxed_call = True  # type: ignore[attr-defined]
    boxed.__wrapped__ = f  # type: ignore[attr-defined]
    return boxed


def make_boxed_compiler(compiler: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a compiler so that its results are boxed."""

    @functools.wraps(compiler)
    def boxed_compiler(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Callable[[list[Any]], Any]:
        return make_boxed_func(compiler(fx_g, inps))

    return boxed_compiler


@make_boxed_compiler
def nop(fx_g: fx.GraphModule, _: Any) -> fx.GraphModule:
    """Return the graph module itself, uncompiled."""
    return fx_g


@make_boxed_compiler
def print_compile(fx_g: fx.GraphModule, _: Any) -> fx.GraphModule:
    """Print the graph module's code, and return the module."""
    print(fx_g.code)  # noqa: T201 (what the caller asked for)
    return fx_g


@make_boxed_compiler
def simple_ts_compile(fx_g: fx.GraphModule, _: Any) -> Any:
    """Compile to a frozen TorchScript module."""
    strip_overloads(fx_g)
    return torch.jit.freeze(torch.jit.script(fx_g).eval())


@make_boxed_compiler
def ts_compile(fx_g: fx.GraphModule, inps: Sequence[Any]) -> Any:
    """Compile to a TorchScript module optimised for inference."""
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
    """Compile the graphs of `f` with TorchScript."""
    return aot_function(f, simple_ts_compile)


def memory_efficient_fusion(fn: Any, **kwargs: Any) -> Any:
    """Compile a function or module with TorchScript, min-cut partitioning and the default decompositions."""
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


def draw_graph(  # noqa: PLR0913 (torch's signature)
    traced: fx.GraphModule,
    fname: str,
    figname: str = "fx_graph",
    clear_meta: bool = True,
    prog: str | list[str] | None = None,
    parse_stack_trace: bool = False,
    dot_graph_shape: str | None = None,
) -> None:
    """Write a graph as a picture; the file's suffix determines the format (`dot` is text).

    Raises:
        UserError: pydot is missing.
    """
    if clear_meta:
        traced = fx.GraphModule(traced, copy.deepcopy(traced.graph))
        for node in traced.graph.nodes:
            node.meta = {}
    base, suffix = os.path.splitext(fname)
    kind = suffix.lstrip(".") or graph_image_format()
    try:
        drawer = FxGraphDrawer(
            traced, figname, parse_stack_trace=parse_stack_trace, dot_graph_shape=dot_graph_shape
        )
    except RuntimeError as error:
        raise UserError(f"cannot draw `{figname}`: {error}; run `pip install pydot`") from error
    picture = drawer.get_main_dot_graph()
    path = f"{base}.{kind}"
    if kind in ("dot", "raw"):
        picture.write(path)
    else:
        programs: dict[str, Any] = {} if prog is None else {"prog": prog}
        picture.write(path, format=kind, **programs)


def draw_graph_compile(name: str) -> Callable[..., Any]:
    """Return a compiler that draws each graph to the file `name` and runs it uncompiled."""
    return make_boxed_compiler(partial(_draw, name=name))


def _draw(fx_g: fx.GraphModule, _: Any, name: str) -> fx.GraphModule:
    draw_graph(fx_g, name)
    return fx_g
