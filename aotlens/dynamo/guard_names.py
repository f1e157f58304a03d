"""Guards in the user's terms: names of values, and values as short text.

Invariant: nothing remains that is not in the user's code: no `L[...]`, no address, no dict of Dynamo's.
"""

import ast
import re
from enum import Enum
from types import CodeType
from typing import Any

import torch

__all__ = [
    "as_guard",
    "evaluate_access",
    "short_dtype",
    "value_accesses",
    "value_text",
    "without_scope",
]

_LONGEST = 60


def value_accesses(node: ast.AST) -> tuple[str, ...]:
    """Return the values that a guard's code reads: every longest chain of attributes, subscripts and calls
    without arguments that begins with a user's name."""
    if _is_chain(node):
        return (ast.unparse(node),)
    accesses = (access for child in ast.iter_child_nodes(node) for access in value_accesses(child))
    return tuple(dict.fromkeys(accesses))


def _is_chain(node: ast.AST) -> bool:
    while True:
        if isinstance(node, ast.Attribute | ast.Subscript):
            node = node.value
        elif isinstance(node, ast.Call) and not node.args and not node.keywords:
            node = node.func
            if isinstance(node, ast.Name):
                return False
        else:
            return (
                isinstance(node, ast.Name) and not node.id.startswith(_DYNAMOS) and node.id not in _BUILTINS
            )


_DYNAMOS = "___check", "___dict", "___tuple", "___skip", "___from", "___as", "utils_"
_BUILTINS = frozenset({"len", "list", "dict", "type", "set", "tuple", "str_", "math", "torch"})


_SHORT = {
    "float": "f",
    "bfloat": "bf",
    "complex": "c",
    "int": "i",
    "uint": "u",
    "bool": "b",
}


def value_text(value: object) -> str:
    """Return a value as one short line; a tensor as `f32[4, 8]`, an object by its type."""
    if isinstance(value, torch.Tensor):
        return f"{short_dtype(str(value.dtype))}{list(value.shape)}"
    if isinstance(value, type):
        return value.__name__
    if isinstance(value, CodeType):
        return value.co_name
    if isinstance(value, Enum):
        return f"{type(value).__name__}.{value.name}"
    if value is None or isinstance(value, bool | int | float | complex | str | bytes):
        text = repr(value)
    elif isinstance(value, torch.dtype | torch.device):
        text = str(value).removeprefix("torch.")
    elif callable(value):
        text = str(getattr(value, "__qualname__", type(value).__name__))
    else:
        text = f"a {type(value).__name__}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}…"


def short_dtype(name: str) -> str:
    """Return `f32` for `torch.float32`."""
    match = re.fullmatch(r"(?:torch\.)?([a-z]+)(\d+)(\w*)", name)
    if match is None or match[1] not in _SHORT:
        return "b8" if name == "torch.bool" else name.removeprefix("torch.")
    return f"{_SHORT[match[1]]}{match[2]}{match[3]}"


def evaluate_access(access: str, scope: dict[str, Any]) -> tuple[bool, Any]:
    """Return the value that a guard's access has in a call, as the guard evaluates it."""
    try:
        return True, eval(access, {}, scope)  # noqa: S307 (the text is Dynamo's, and runs at each call anyway)
    except Exception:  # noqa: BLE001 (the access fails in this call: an entry or attribute is gone)
        return False, None


def without_scope(source: str) -> str:
    """Return `x` for `L['x']`, as guards are printed."""
    return source[3:-2] if source.startswith("L['") and source.find("']") == len(source) - 2 else source


def as_guard(text: str) -> str:
    """Convert a condition logged by symbolic shapes to the form in which guards are printed."""
    text = re.sub(r"L\['(\w+)'\]", r"\1", text)
    match = re.fullmatch(r"(?P<op>Eq|Ne)\((?P<left>.*), (?P<right>[^,]*)\)", text)
    if match:
        return f"{match['left']} {'==' if match['op'] == 'Eq' else '!='} {match['right']}"
    return text
