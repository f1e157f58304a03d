"""A program as the text of a Python function.

Invariant: the text computes exactly the program; each group of lines has the user's source line above it, and
each value its type beside it.
"""

import builtins
import keyword
import linecache
import os
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

import torch

from aotlens.ir.program import Node, Program, TableIndex, getitem, is_higher_order, last_uses, map_leaves
from aotlens.ir.subclasses import UnwrapOperator, WrapOperator, is_plain
from aotlens.ir.symbols import SymbolicExpression, is_ragged
from aotlens.ir.tensor_text import type_text
from aotlens.model.report import Span
from aotlens.torch_api.dynamo.state import is_opaque_value
from aotlens.torch_api.operators import OpOverload, attribute_text
from aotlens.torch_api.python_functions import python_function
from aotlens.torch_api.symbolic import print_expression

RESERVED = frozenset(keyword.kwlist) | frozenset(dir(builtins)) | {"torch", "ctx", "call"}


Call = tuple[Any, tuple[Any, ...], Mapping[str, Any]]
"""An operator, and the arguments of one call of it: nodes, fake tensors, literals."""


class Names:
    """Python names of nodes and operators within one module text."""

    def __init__(self, as_called: bool = False, with_functions: bool = False) -> None:
        self.as_called = as_called
        """Whether the text calls operators as the user's code did; a graph calls `reshape` for `view`."""
        self.with_functions = with_functions
        """Whether the text calls torch's Python functions where it can, which is faster."""
        self.operators: dict[str, str] = {}
        """Name in the text by the operator's path: `torch.ops.aten.mm.default._op` to `aten_mm`."""
        self.calls: dict[str, list[Call]] = {}
        """The calls of each operator, by the operator's path."""
        self.subgraph_names: set[str] = set()
        """Names of the subgraphs that the text already contains."""

        self.objects: dict[str, Any] = {}
        """Objects that the text names but cannot write as literals: classes, the metadata of wrappers."""
        self.ragged: dict[str, str] = {}
        """How the text reads the ragged size of a jagged argument, by its symbol."""

    def object(self, value: Any, base: str) -> str:
        """Return the name of an object, always the same for the same object."""
        for name, named in self.objects.items():
            if named is value:
                return name
        name = base if base not in self.objects else f"{base}_{len(self.objects)}"
        self.objects[name] = value
        return name

    def node(self, node: Node) -> str:
        return f"{node.name}_" if node.name in RESERVED else node.name

    def operator(self, op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str:
        """Return the name of the operator that the text calls with these arguments."""
        path = operator_path(op)
        self.calls.setdefault(path, []).append((op, args, kwargs))
        operator_name = self.operators.get(path)
        if operator_name is None:
            short = (
                path.removeprefix("torch.ops.")
                .removesuffix("._op")
                .replace(".", "_")
                .removesuffix("_default")
            )
            operator_name = self.operators[path] = short
        return operator_name


def operator_path(op: Any) -> str:
    """Return the path of the operator's kernel, from `torch` on; `_op` saves one Python frame per call."""
    if isinstance(op, OpOverload):
        return f"torch.ops.{op}._op"
    if is_higher_order(op):
        return f"torch.ops.higher_order.{op}"
    module = getattr(op, "__module__", "torch")
    return f"{module}.{op.__qualname__ if hasattr(op, '__objclass__') else op.__name__}"


def function_path(calls: Sequence[Call]) -> str | None:
    """Return the path of torch's Python function that does for all calls of an operator; None without one."""
    paths = {_function_path(op, args, kwargs) for op, args, kwargs in calls}
    return paths.pop() if len(paths) == 1 else None


def _function_path(op: Any, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> str | None:
    if not isinstance(op, OpOverload):
        return None
    return python_function(op, map_leaves(args, _value), map_leaves(dict(kwargs), _value))


def _value(leaf: Any) -> Any:
    return leaf.val if isinstance(leaf, Node) else leaf


def literal(value: Any, names: Names) -> str:
    """Return one argument as Python text."""
    if isinstance(value, Node):
        return names.node(value)
    if isinstance(value, (list, tuple)):
        items = ", ".join(literal(item, names) for item in value)
        if isinstance(value, tuple):
            return f"({items},)" if len(value) == 1 else f"({items})"
        return f"[{items}]"
    if isinstance(value, torch.SymInt):
        if is_ragged(value):
            return names.ragged.get(str(value), str(value))
        expression = value.node.expr
        return print_expression(expression, {str(symbol): str(symbol) for symbol in expression.free_symbols})
    if isinstance(value, TableIndex):
        return names.object(value, "table_index")
    if isinstance(value, torch.device):
        return f"torch.device('{value}')"
    if type(value) is dict:
        return f"{{{', '.join(f'{key!r}: {literal(item, names)}' for key, item in value.items())}}}"
    if isinstance(value, Program):
        return value.name
    if isinstance(value, OpOverload):
        return attribute_text(f"torch.ops.{value}")
    if not isinstance(value, (int, float, complex, str)) and is_opaque_value(value):
        return names.object(value, type(value).__name__.lower())
    return _number_text(value)


def _number_text(value: Any) -> str:
    """Return a number as text, also one of a derived class: an `IntEnum` member, a NumPy number."""
    if isinstance(value, complex):
        parts = f"complex({_number_text(value.real)}, {_number_text(value.imag)})"
        return complex.__repr__(value) if isfinite(value.real) and isfinite(value.imag) else parts
    if isinstance(value, float) and not isfinite(value):
        return f"float('{float(value)}')"
    kind: Any = next((kind for kind in (bool, int, float, str) if isinstance(value, kind)), type(value))
    return str(kind.__repr__(value))


def call_text(node: Node, names: Names) -> str:
    """Return the right-hand side that computes a node."""
    arguments = [literal(arg, names) for arg in node.args]
    if node.op is getitem:
        return f"{arguments[0]}[{arguments[1]}]"
    match node.op:
        case SymbolicExpression() as expression:
            return expression.text(tuple(arguments))
        case UnwrapOperator(attribute=attribute):
            return f"{arguments[0]}.{attribute}"
        case WrapOperator() as made:
            return _wrap_text(made, node, names)
    arguments += [f"{key}={literal(value, names)}" for key, value in node.kwargs.items()]
    op = node.op if names.as_called else _kernel(node)
    return f"{names.operator(op, node.args, node.kwargs)}({', '.join(arguments)})"


def _wrap_text(wrap_operator: WrapOperator, node: Node, names: Names) -> str:
    inner, size, stride = node.args
    parts = {name: literal(value, names) for name, value in zip(wrap_operator.inner, inner, strict=True)}
    parts |= {name: opaque_text(name, value, names) for name, value in wrap_operator.others}
    return unflatten_text(
        wrap_operator.kind,
        wrap_operator.context,
        parts,
        (literal(size, names), literal(stride, names)),
        names,
    )


def unflatten_text(
    kind: type[Any], context: Any, parts: Mapping[str, str], layout: tuple[str, str], names: Names
) -> str:
    """Return the expression that makes a wrapper; `layout` is the text of its sizes and of its strides."""
    inner = ", ".join(f"{name!r}: {text}" for name, text in parts.items())
    size, stride = layout
    size = size if "None" in size else f"torch.Size({size})"
    unflatten = f"{names.object(kind, kind.__name__)}.__tensor_unflatten__"
    return f"{unflatten}({{{inner}}}, {context_text(context, names)}, {size}, {stride})"


def opaque_text(attribute: str, value: Any, names: Names) -> str:
    """Return the name of a wrapper's attribute that is no tensor, such as a device mesh."""
    return names.object(value, attribute.upper().strip("_"))


def context_text(context: Any, names: Names) -> str:
    """Return a subclass's own metadata, as a literal if it is made of plain values."""
    return repr(context) if is_plain(context) else names.object(context, "CONTEXT")


def _kernel(node: Node) -> Any:
    """Return the operator that the text calls: `view` becomes `reshape`, which does the same if a view is
    possible.

    The strides of a kernel's output can differ from those of its fake tensor (batch norm of a transposed
    input).
    """
    if node.op is torch.ops.aten.view.default:
        return torch.ops.aten.reshape.default
    return node.op


def source_text(span: Span) -> str:
    """Return the source line of a span: `model.py:41: h = self.fc(x)`."""
    line = linecache.getline(span.file, span.line).strip()
    return f"{os.path.basename(span.file)}:{span.line}: {line}"


def function_lines(
    program: Program, name: str, names: Names, *, boxed: bool = False, notes: Mapping[str, str] | None = None
) -> list[str]:
    """Return the program as the lines of `def name(…): …`, which returns a tuple.

    A boxed function takes one list, empties it, and frees each input after its last use.  `notes` holds
    comments by node name.
    """
    parameters = ", ".join(names.node(graph_input.node) for graph_input in program.inputs)
    lines = [f"def {name}({'inputs' if boxed else parameters}):"]
    if boxed:
        lines += [f"    {parameters}{',' if len(program.inputs) == 1 else ''} = inputs", "    inputs.clear()"]
    last_use = last_uses(program, () if boxed else [graph_input.node for graph_input in program.inputs])
    group = None
    for position, node in enumerate(program.nodes):
        if node.constant is not None:
            continue
        heading = _heading(node)
        if heading != group and heading is not None:
            lines.append(f"    # {heading}")
            group = heading
        note = notes.get(node.name, "") if notes else ""
        lines.append("    " + _assignment(node, names, last_use.get(position, ()), note))
    results = ", ".join(literal(output.value, names) for output in program.outputs)
    comma = "," if len(program.outputs) == 1 else ""
    several = f"[{results}]" if program.returns_list else f"({results}{comma})"
    lines.append(f"    return {results if program.returns_single else several}")
    return lines


def subgraph_lines(program: Program, names: Names) -> list[str]:
    """Return the functions of the program's subgraphs, innermost first, each once per text."""
    lines: list[str] = []
    for subgraph in program.subgraphs():
        if subgraph.name not in names.subgraph_names:
            names.subgraph_names.add(subgraph.name)
            lines += [
                *subgraph_lines(subgraph, names),
                *function_lines(subgraph, subgraph.name, names),
                "",
                "",
            ]
    return lines


def _heading(node: Node) -> str | None:
    span = node.origin.location.innermost
    if span is None:
        prefix = "" if node.origin.stage == "captured" else f"added by {node.origin.stage}: "
        return f"{prefix}{node.origin.reason}" if node.origin.reason else None
    return f"{'backward of ' if node.origin.backward else ''}{source_text(span)}"


def _assignment(node: Node, names: Names, dead: tuple[Node, ...], note: str) -> str:
    """Return the line that computes a node and frees the `dead` values, with its type and note as a
    comment."""
    text = call_text(node, names)
    silent = node.origin.effect and (node.val is None or node.op is torch.ops.aten.copy_.default)
    # A random op that only advances the RNG state; when captured, a write, or what only the backward reads.
    unread = any(other is node for other in dead)
    line = text if silent or unread else f"{names.node(node)} = {text}"
    freed = [names.node(other) for other in dead if other is not node]
    if freed:
        line += f"; del {', '.join(freed)}"
    comment = "; ".join(filter(None, ("" if silent else type_text(node.val), note)))
    return f"{line}  # {comment}" if comment else line
