"""The user's names for the functions that Dynamo makes where its graph breaks."""

import ast
import linecache
import re

from aotlens.model.report import AFTER

_RESUMED = re.compile(r"torch_dynamo_resume_in_(?P<name>\w+)_at_(?P<line>\d+)$")


def user_qualname(qualname: str, file: str) -> str:
    """`torch_dynamo_resume_in_forward_at_17` is what follows a break: `Net.forward after line 17`."""
    match = _RESUMED.search(qualname)
    if match is None:
        return qualname
    line = int(match["line"])
    enclosing = _definition_at(file, line)
    known = enclosing if enclosing.rpartition(".")[2] == match["name"] else match["name"]
    return f"{known}{AFTER}{line}"


def _definition_at(file: str, line: int) -> str:
    """The qualified name of the innermost definition around a line; empty when the file cannot be read."""
    try:
        tree = ast.parse("".join(linecache.getlines(file)))
    except SyntaxError:  # a cell, or a file that was changed since
        return ""
    names: list[str] = []
    body: list[ast.stmt] = tree.body
    while body:
        around = next((node for node in body if node.lineno <= line <= (node.end_lineno or 0)), None)
        body = []
        if isinstance(around, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            names.append(around.name)
            body = around.body
            if not isinstance(around, ast.ClassDef) and _holds_definition(body, line):
                names.append("<locals>")
        elif around is not None:
            body = [node for node in ast.iter_child_nodes(around) if isinstance(node, ast.stmt)]
    return ".".join(names)


def _holds_definition(body: list[ast.stmt], line: int) -> bool:
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef
    inner = (node for statement in body for node in ast.walk(statement) if isinstance(node, kinds))
    return any(node.lineno <= line <= (node.end_lineno or 0) for node in inner)
