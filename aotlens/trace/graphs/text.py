"""Rebuild a graph from the Python text that torch logs.

Invariant: the text is read, never executed.  Each expression is parsed with `ast`; one that is not a plain
expression of names, constants, operators and calls by name is rejected, and the graph says so.
"""

import ast
import re
from collections.abc import Iterator
from dataclasses import replace

from aotlens.trace.graphs.records import Argument, Graph, GraphNode, Line, Result

__all__ = ["DEVICE_MODE", "is_device_mode", "parse_graph"]

MAX_EXPRESSION = 200_000
"""Characters of one node's expression; a concatenation of 10,000 tensors is shorter."""
MAX_NODES = 500_000
DEVICE_MODE = "torch/utils/_device.py"
"""The mode of a default device (`torch.set_default_device`, `with torch.device(…)`), through which every call
of the program goes: of its stack, torch logs this frame alone."""

_CLASS = re.compile(r"^\s*class ([\w<>]+)\(")
_FILE = re.compile(r"File: (.*?):(\d{1,9}) in (.+?), code: (.*)$")
_REGION = re.compile(r"ac_graph_id: (\d+(?: - \w+)?)")
_NODE = re.compile(r'^\s+(\w+)(?:: "([^"]*)")? = (.*)$')
_DECLARED = re.compile(r'^\s+\w+: "[^"]*"(?:;|,|\s+#|\s*$)')
_ARGUMENT = re.compile(r'(\w+)(?:: "([^"]*)")?,?(?:\s+# (.*))?$')
_TYPED = re.compile(r'(\w+): "([^"]*)"')
_RESULT = re.compile(r"^\s+([\w.+-]+),?(?:\s+# (.*))?$")
_FREED = re.compile(r";  (?:\w+ = )+None$")
"""Torch frees values behind their last read, on the same line: `;  x = y = None`."""

_PLAIN = (
    ast.Call,
    ast.Name,
    ast.Attribute,
    ast.Constant,
    ast.Tuple,
    ast.List,
    ast.Dict,
    ast.Set,
    ast.keyword,
    ast.Subscript,
    ast.Slice,
    ast.Starred,
    ast.BinOp,
    ast.UnaryOp,
    ast.BoolOp,
    ast.Compare,
    ast.operator,
    ast.unaryop,
    ast.boolop,
    ast.cmpop,
    ast.expr_context,
)


def is_device_mode(file: str) -> bool:
    """Return True for the frame that replaces the user's where the program has a default device."""
    return file.replace("\\", "/").endswith(DEVICE_MODE)


def parse_graph(text: str) -> Graph:
    """Return the first class of the text, with the following classes as its subgraphs."""
    lines = text.split("\n")
    starts = [index for index, line in enumerate(lines) if _CLASS.match(line)]
    if not starts:  # Inductor prints an inference graph without its class
        return _Reader("").read(lines) if "def forward(" in text else Graph("", (), (), ())
    graphs = [
        _Reader(match[1]).read(lines[start + 1 : end])
        for start, end in zip(starts, [*starts[1:], len(lines)], strict=True)
        if (match := _CLASS.match(lines[start]))
    ]
    return replace(graphs[0], subgraphs=tuple(graphs[1:]))


class _Reader:
    """Reads one class, line by line."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.arguments: list[Argument] = []
        self.nodes: list[GraphNode] = []
        self.results: list[Result] = []
        self.unparsed_lines: list[str] = []
        self._renamed: dict[str, str] = {}
        """Dynamo's graph first gives its arguments a second name."""
        self._known: set[str] = set()
        self._line: Line | None = None
        self._region = ""

    def read(self, lines: list[str]) -> Graph:
        rest = iter(lines)
        self._read_signature(rest)
        for line in rest:
            stripped = line.strip()
            if stripped.startswith("return"):
                self._read_results(stripped, rest)
                break
            if stripped.startswith("#"):
                self._read_comment(stripped)
            elif stripped and len(self.nodes) < MAX_NODES:
                self._read_line(line)
        return Graph(
            self.name,
            tuple(self.arguments),
            tuple(self.nodes),
            tuple(self.results),
            unparsed_lines=tuple(self.unparsed_lines),
        )

    def _read_signature(self, lines: Iterator[str]) -> None:
        """Read `def forward(self, x: "f32[4]"):` on one line, or one argument per line with its slot."""
        for line in lines:
            stripped = line.strip()
            if not stripped.startswith("def forward("):
                continue
            if stripped.endswith(":"):
                for name, type_ in _TYPED.findall(stripped):
                    self._add_argument(name, type_, "")
                return
            for argument in lines:
                if argument.strip().startswith(")"):
                    return
                if (match := _ARGUMENT.match(argument.strip())) and match[2] is not None:
                    self._add_argument(match[1], match[2], match[3] or "")
            return

    def _add_argument(self, name: str, type_: str, slot: str) -> None:
        self.arguments.append(Argument(name, type_, slot))
        self._known.add(name)

    def _read_comment(self, text: str) -> None:
        match = _FILE.search(text)
        if match is None or is_device_mode(match[1]):
            self._line = None
        else:
            self._line = Line(match[1], int(match[2]), match[3], match[4])
        region = _REGION.search(text)
        self._region = region[1] if region else ""

    def _read_line(self, line: str) -> None:
        if _DECLARED.match(line) and " = " not in line.partition("  #")[0]:
            slot = line.partition("  # ")[2].strip()
            for name, type_ in _TYPED.findall(line):
                self._add_argument(name, type_, slot)
            return
        match = _NODE.match(line)
        if match is None:
            if "tree_flatten_spec" not in line:
                self._skip_line(line)
            return
        name, type_, expression = match[1], match[2] or "", _FREED.sub("", match[3])
        if expression in self._known:
            self._renamed[name] = self._renamed.get(expression, expression)
            self._known.add(name)
            return
        node = self._node(name, type_, expression)
        if node is None:
            self._skip_line(line)
        else:
            self.nodes.append(node)
        self._known.add(name)

    def _skip_line(self, line: str) -> None:
        self.unparsed_lines.append(line.strip()[:200])

    def _node(self, name: str, type_: str, expression: str) -> GraphNode | None:
        tree = _parsed(expression)
        if tree is None:
            return None
        names = (self._renamed.get(name, name) for name in _names(tree) if name in self._known)
        op = "get_attr" if isinstance(tree, ast.Attribute) and _root(tree) == "self" else "call_function"
        inputs = tuple(dict.fromkeys(names))
        return GraphNode(
            name, op, _target(tree, self._known), inputs, type_, expression, self._line, self._region
        )

    def _read_results(self, stripped: str, lines: Iterator[str]) -> None:
        if not stripped.endswith(("(", "[", "([")):
            tree = _parsed(stripped[6:].strip() or "()")
            self.results = [self._result(name, "") for name in _returned(tree)]
            return
        for line in lines:
            if line.strip().startswith((")", "]")):
                return
            if match := _RESULT.match(line):
                self.results.append(self._result(match[1], match[2] or ""))

    def _result(self, name: str, slot: str) -> Result:
        return Result(self._renamed.get(name, name), slot)


def _parsed(expression: str) -> ast.expr | None:
    """Return the expression's tree; None if it is too long, no expression, or not a plain one."""
    if len(expression) > MAX_EXPRESSION:
        return None
    try:
        tree = ast.parse(expression, mode="eval").body
        return tree if all(isinstance(part, _PLAIN) for part in ast.walk(tree)) else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None


def _names(tree: ast.expr) -> Iterator[str]:
    """Yield names in the order of the text."""
    names = [part for part in ast.walk(tree) if isinstance(part, ast.Name)]
    yield from (name.id for name in sorted(names, key=lambda name: (name.lineno, name.col_offset)))


def _root(tree: ast.expr) -> str:
    while isinstance(tree, ast.Attribute):
        tree = tree.value
    return tree.id if isinstance(tree, ast.Name) else ""


def _target(tree: ast.expr, known: set[str]) -> str:
    match tree:
        case ast.Call(func=ast.Attribute(value=value, attr=method)) if _root(value) in known:
            return f"Tensor.{method}"
        case ast.Call(func=function):
            return _dotted(function)
        case ast.Subscript(slice=ast.Constant(value=int(index))):
            return f"getitem[{index}]"
        case ast.Subscript():
            return "getitem"
        case ast.BinOp(op=operator) | ast.UnaryOp(op=operator) | ast.BoolOp(op=operator):
            return _operator_name(operator)
        case ast.Compare(ops=[operator, *_]):
            return _operator_name(operator)
        case ast.Attribute(attr=name):
            return _dotted(tree) if _root(tree) == "self" else f"Tensor.{name}"
    return "constant"


def _dotted(function: ast.expr) -> str:
    text = ast.unparse(function)
    return text.removeprefix("torch.ops.").removeprefix("self.")


_OPERATORS = {"mult": "mul", "matmult": "matmul", "div": "truediv", "usub": "neg", "invert": "invert"}


def _operator_name(operator: ast.AST) -> str:
    """Return Python's own name: `mul` for a multiplication."""
    name = type(operator).__name__.lower()
    return _OPERATORS.get(name, name)


def _returned(tree: ast.expr | None) -> Iterator[str]:
    """Yield the values of a return statement on one line, flattened."""
    match tree:
        case ast.Tuple(elts=elements) | ast.List(elts=elements):
            for element in elements:
                yield from _returned(element)
        case ast.Call(args=[first, *_]):
            yield from _returned(first)
        case None:
            return
        case _:
            yield ast.unparse(tree)
