"""Pictures of graph modules, as compilers that draw what they get make them."""

import copy
import os
from collections.abc import Callable
from functools import partial
from typing import Any

from torch import fx
from torch.fx.passes.graph_drawer import FxGraphDrawer

from aotlens.errors import UserError
from aotlens.frontends.compilers import make_boxed_compiler
from aotlens.torch_api.aot import graph_image_format


def draw_graph(  # noqa: PLR0913 (torch's signature)
    traced: fx.GraphModule,
    fname: str,
    figname: str = "fx_graph",
    clear_meta: bool = True,
    prog: str | list[str] | None = None,
    parse_stack_trace: bool = False,
    dot_graph_shape: str | None = None,
) -> None:
    """Write a graph as a picture; the file's suffix says in which format, `dot` is text.

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
    """A compiler that draws each graph to the file `name` and runs it as it is."""
    return make_boxed_compiler(partial(_draw, name=name))


def _draw(fx_g: fx.GraphModule, _: Any, name: str) -> fx.GraphModule:
    draw_graph(fx_g, name)
    return fx_g
