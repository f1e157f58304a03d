"""The Python text of fx's graphs, also where an operator's name is a keyword (`aten.random.from`).

fx writes the text when a graph module is first read or called, which may be long after a compilation: the
graph's own code generator enters the scope.
"""

from typing import Any

from torch.fx import Graph
from torch.fx.graph import CodeGen, _PyTreeCodeGen

from aotlens.torch_api.patches.scopes import patched
from aotlens.torch_api.patches.table import GRAPH_TEXT

__all__ = ["PyTreeCodeGenWithKeywords", "write_keywords"]


class _CodeGenWithKeywords(CodeGen):
    def _gen_python_code(self, *args: Any, **kwargs: Any) -> Any:
        with patched(GRAPH_TEXT):
            return super()._gen_python_code(*args, **kwargs)


class PyTreeCodeGenWithKeywords(_CodeGenWithKeywords, _PyTreeCodeGen):
    """The same for a graph that takes and returns nested arguments."""


def write_keywords(graph: Graph) -> None:
    """Give a graph with flat arguments a code generator that can write all operators."""
    graph.set_codegen(_CodeGenWithKeywords())
