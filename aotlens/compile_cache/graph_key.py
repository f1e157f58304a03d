"""The graph that Dynamo captured, as text: graphs with equal texts compile to equal results.

Invariant: every target is identified by its qualified name in torch, and every constant by its bytes; the
user's functions, operators and objects raise `NoFingerprintError`, since a name does not determine what they
do.
"""

import linecache
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import fx

from aotlens.capture.provenance.dynamo_nodes import spans_of_node
from aotlens.compile_cache.tensor_key import bytes_text
from aotlens.disk_cache import digest
from aotlens.ir.fingerprint import NoFingerprintError, fingerprint_text
from aotlens.ir.program import is_higher_order
from aotlens.model.report import Span
from aotlens.model.spans import location
from aotlens.torch_api.operators import OpOverload, OpOverloadPacket, qualified_name

__all__ = ["attribute_at", "function_name", "graph_lines", "source_lines", "spans_of_graph"]

NAMESPACES = frozenset({"aten", "prims", "rngprims", "inductor", "quantized", "_quantized"})
"""Namespaces of operators whose meaning is fixed by torch's version."""

WITH_FUNCTIONS = frozenset(
    {
        "associative_scan",
        "autograd_function_apply",
        "cond",
        "flex_attention",
        "invoke_subgraph",
        "map_impl",
        "scan",
        "tag_activation_checkpoint",
        "while_loop",
        "wrap",
        "wrap_with_autocast",
        "wrap_with_set_grad_enabled",
    }
)
"""Higher-order operators that their arguments and subgraphs describe completely."""

MODULES = ("torch", "math", "operator", "_operator", "builtins")

COUNTED = re.compile(r"(<eval_with_key>)\.\d+")
"""The code file of a graph module, whose number torch counts per process."""

CHECKPOINT_CONTEXT = "_checkpoint_context_fn"
"""The metadata key under which Dynamo stores a checkpoint's Python function."""


def graph_lines(gm: fx.GraphModule) -> Iterator[str]:
    """Yield one line per node; those of a subgraph at the node that names it."""
    for node in gm.graph.nodes:
        yield from _node(gm, node)


def spans_of_graph(gm: fx.GraphModule) -> Iterator[Span]:
    """Yield the user's source spans of the nodes, including those of subgraphs."""
    for module in gm.modules():
        if isinstance(module, fx.GraphModule):
            for node in module.graph.nodes:
                yield from spans_of_node(node)


def source_lines(spans: Iterable[Span]) -> str:
    """Return one digest of the user's lines that a module text quotes."""
    locations = dict.fromkeys((span.file, span.line) for span in spans)
    return digest(*(linecache.getline(file, line) for file, line in locations))


def _node(gm: fx.GraphModule, node: fx.Node) -> Iterator[str]:
    try:
        if node.op == "get_attr":
            yield from _attribute(gm, node)
            target = str(node.target)
        elif node.op == "call_function":
            target = function_name(node.target)
        elif node.op == "call_module":
            raise NoFingerprintError(f"a layer within the graph (`{node.target}`)")
        else:
            target = str(node.target)
        args, kwargs = (fingerprint_text(value, _graph_value_text) for value in (node.args, node.kwargs))
    except NoFingerprintError as error:
        span = next(iter(spans_of_node(node)), None)
        raise NoFingerprintError(
            f"{error}, at {location(span)}" if span is not None else str(error)
        ) from None
    spans = ";".join([f"{s.file}:{s.line}:{s.col}:{s.end_line}:{s.end_col}" for s in spans_of_node(node)])
    codes = COUNTED.sub(r"\1", str(node.meta.get("aotlens_codes")))
    yield f"{node.op} {node.name} {target} {args} {kwargs} {spans} {codes}"


def _graph_value_text(value: Any) -> str | None:
    if isinstance(value, fx.Node):
        return f"%{value.name}"
    if isinstance(value, torch.SymInt):
        return f"symbol {value.node.expr}"
    return function_name(value) if callable(value) and not isinstance(value, (type, torch.Tensor)) else None


def _attribute(gm: fx.GraphModule, node: fx.Node) -> Iterator[str]:
    value = attribute_at(gm, str(node.target))
    if isinstance(value, fx.GraphModule):
        if CHECKPOINT_CONTEXT in value.meta and value.meta[CHECKPOINT_CONTEXT] is not None:
            raise NoFingerprintError("a checkpoint with a function of its own")
        yield f"graph {node.target} {fingerprint_text(value.meta, _graph_value_text)}"
        yield from graph_lines(value)
        yield f"end of graph {node.target}"
    elif isinstance(value, torch.nn.Parameter) or _is_buffer(gm, str(node.target)):
        return  # an input of the recording, described with the others
    elif isinstance(value, torch.Tensor):
        yield bytes_text(value)
    else:
        raise NoFingerprintError(f"a constant of type {type(value).__qualname__}")


def attribute_at(gm: fx.GraphModule, path: str) -> Any:
    """Return a graph module's attribute at a dotted path."""
    value: Any = gm
    for step in path.split("."):
        value = getattr(value, step)
    return value


def _is_buffer(gm: fx.GraphModule, path: str) -> bool:
    owner, _, name = path.rpartition(".")
    module = gm.get_submodule(owner)
    return name in module._buffers


def function_name(target: Any) -> str:
    """Return the qualified name of a torch function or operator."""
    if isinstance(target, (OpOverload, OpOverloadPacket)):
        name = str(target)
        if name.split(".", maxsplit=1)[0] in NAMESPACES:
            return name
        raise NoFingerprintError(f"the custom operator `{name}`")
    if is_higher_order(target):
        if target.name() in WITH_FUNCTIONS:
            return f"higher_order.{target.name()}"
        raise NoFingerprintError(f"the operator `{target.name()}`")
    name = qualified_name(target)
    if name.split(".")[0] in MODULES and _resolved(name) is target:
        return name
    raise NoFingerprintError(f"the function `{getattr(target, '__qualname__', target)}`, none of torch's")


def _resolved(name: str) -> Any:
    """Return the object with a dotted name that begins with a module."""
    steps = name.split(".")
    for split in range(len(steps) - 1, 0, -1):
        value: Any = sys.modules.get(".".join(steps[:split]))
        if value is not None:
            for step in steps[split:]:
                value = getattr(value, step, None)
            return value
    return None
