"""Why Dynamo recompiles a function: the guard that failed, in the user's names, with both values.

Invariant: one cause per recompilation, relative to the compilation that is nearest to the call; differences
from other compilations are their own cases.

| guard, as Dynamo prints it | kind | name | values |
|---|---|---|---|
| `tensor 'x' size mismatch at index 0. expected 4, actual 8` | size | `x.shape[0]` | 4, 8 |
| `2 <= x.size()[0]` | size | `x.shape[0]` | `>= 2`, 1 |
| `2 <= x.size()[0] <= 6` | size | `x.shape[0]` | `2 to 6`, 9 |
| `x.size()[0] <= y.size()[0]` | size relation | both sizes | the condition, both values |
| `tensor 'x' dtype mismatch. expected Float, actual Double` | dtype | `x.dtype` | float32, float64 |
| `k == 2` | number, or value | `k` | 2, 3 |
| `len(cache) == 1`, `not cache` | length | `len(cache)` | 1, 2 |
| `___check_type_id(k, …), type=<class 'int'>` | type | `k` | int, float |
| `___check_obj_id(self.training, …)` | value, or object | `self.training` | True, False |
| `not ___dict_contains('mask', kw)` | keys | `kw['mask']` | absent, present |
| `GLOBAL_STATE changed: grad_mode` | mode | `grad mode` | |
"""

import ast
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import torch

from aotlens.dynamo.guard_names import evaluate_access, value_accesses, value_text
from aotlens.dynamo.user_names import state_names, user_name
from aotlens.model.dynamo import CauseKind
from aotlens.torch_api.dynamo.events import DynamoRecompile, GuardMiss

__all__ = ["FailedGuard", "closest_entry", "failed_guard", "of_wrapped_module"]


@dataclass(frozen=True, slots=True)
class FailedGuard:
    """A guard that a call failed."""

    kind: CauseKind
    guard: str
    name: str
    old: str = ""
    new: str = ""
    source: str = ""
    """The value as guards name it, `x` or `x.size()[0]`; empty where there is none."""


_TENSOR_CHECKS = ("dispatch key", "dtype", "device", "requires_grad", "rank", "size", "stride")
"""In the order in which one guard runs them: the later a call fails, the nearer it is."""
_TENSOR_CHECK = re.compile(r"tensor '(?P<name>.*?)' (?P<rest>.*)", re.DOTALL)
"""A failed check of a tensor, which Dynamo prints as a sentence without code."""


def closest_entry(recompile: DynamoRecompile) -> GuardMiss | None:
    """Return the entry whose guards the call passed longest; of equal ones the last used."""
    if not recompile.misses:
        return None
    return max(recompile.misses, key=lambda miss: (miss.passed, _depth(miss.reason)))


def _depth(reason: str) -> int:
    """Return the index of the tensor check that failed; -1 for other guards.

    Without the tensor's name and the user's source line, which may contain the words of another check.
    """
    match = _TENSOR_CHECK.match(_code(reason))
    failed = match["rest"] if match else ""
    return max((index for index, check in enumerate(_TENSOR_CHECKS) if check in failed), default=-1)


def failed_guard(miss: GuardMiss, scope: Mapping[str, Any], broken: str = "") -> FailedGuard:
    """Return the failed guard of a cache entry, with the values of the call.

    `broken` is the expression of the graph break before a resume function, whose value may be guarded.
    """
    part = _code(miss.reason)
    values = {**miss.closure, **scope["L"], **scope}
    failed = (
        _of_tensor(part)
        or _of_state(part)
        or _of_key(part, values)
        or _of_identity(part, values)
        or _of_code(part, values)
    )
    if failed is None:
        return FailedGuard("other", user_name(part, broken), user_name(part, broken))
    return FailedGuard(
        failed.kind,
        user_name(failed.guard, broken),
        user_name(failed.name, broken),
        failed.old,
        failed.new,
        failed.source or failed.name,
    )


_CALLED_BY_WRAPPER = re.compile(r"\bfn(?=[.\[])")


def of_wrapped_module(failed: FailedGuard) -> FailedGuard:
    """Return a guard of the wrapper around a module of torch's with `self` for the module."""
    guard, name = (_CALLED_BY_WRAPPER.sub("self", text) for text in (failed.guard, failed.name))
    return replace(failed, guard=guard, name=name)


def _code(reason: str) -> str:
    """Return the guard's code, without the source line that Dynamo appends."""
    return re.split(r"\s+# |\nUser stack trace", reason, maxsplit=1)[0].strip()


_DTYPES = {
    "Float": "float32",
    "Double": "float64",
    "Half": "float16",
    "BFloat16": "bfloat16",
    "Long": "int64",
    "Int": "int32",
    "Short": "int16",
    "Char": "int8",
    "Byte": "uint8",
    "Bool": "bool",
    "ComplexFloat": "complex64",
    "ComplexDouble": "complex128",
}


def _of_tensor(part: str) -> FailedGuard | None:
    """Parse a check of one tensor."""
    match = re.match(r"expected type of '(?P<name>.*?)' to be (?P<rest>.*)found <class '(?P<new>.*?)'>", part)
    if match and re.match(r"a tensor type|<class 'torch\.Tensor'>", match["rest"]):  # the latter from 2.15 on
        name, new = match["name"], match["new"].rpartition(".")[2]
        return FailedGuard("type", f"type({name}) is Tensor", name, "Tensor", new.replace("NoneType", "None"))
    match = _TENSOR_CHECK.match(part)
    return _tensor_check(match["name"], match["rest"]) if match else None


def _tensor_check(name: str, rest: str) -> FailedGuard | None:
    for pattern, make in _TENSOR_FORMS:
        match = re.search(pattern, rest, re.DOTALL)
        if match:
            return make(name, match)
    return FailedGuard("other", f"{name}: {rest}", name)


def _sized(kind: CauseKind, form: str) -> Callable[[str, re.Match[str]], FailedGuard]:
    def make(name: str, match: re.Match[str]) -> FailedGuard:
        value = form.format(name=name, index=match["index"])
        return FailedGuard(kind, f"{value} == {match['old']}", value, match["old"], match["new"], name)

    return make


def _of_dtype(name: str, match: re.Match[str]) -> FailedGuard:
    old, new = (_DTYPES.get(match[side], match[side].lower()) for side in ("old", "new"))
    return FailedGuard("dtype", f"{name}.dtype == {old}", f"{name}.dtype", old, new, name)


def _of_rank(name: str, match: re.Match[str]) -> FailedGuard:
    return FailedGuard(
        "rank", f"{name}.ndim == {match['old']}", f"{name}.ndim", match["old"], match["new"], name
    )


def _of_requires_grad(name: str, match: re.Match[str]) -> FailedGuard:
    old = match["old"] == "1"
    value = f"{name}.requires_grad"
    return FailedGuard("requires_grad", f"{value} == {old}", value, str(old), str(not old), name)


def _of_dispatch_keys(name: str, match: re.Match[str]) -> FailedGuard:
    old, new = (set(re.findall(r"\w+", match[side])) - {"DispatchKeySet"} for side in ("old", "new"))
    removed, added = ", ".join(sorted(old - new)), ", ".join(sorted(new - old))
    guard = f"{name} has the same dispatch keys"
    return FailedGuard(
        "dispatch keys", guard, name, f"with {removed}" if removed else "", f"with {added}", name
    )


def _of_device(name: str, match: re.Match[str]) -> FailedGuard:
    return FailedGuard("device", f"{name} is on the same device", f"{name}.device", "", "", name)


_TENSOR_FORMS: tuple[tuple[str, Callable[[str, re.Match[str]], FailedGuard]], ...] = (
    (
        r"size mismatch at index (?P<index>\d+)\. expected (?P<old>\S+), actual (?P<new>\S+)",
        _sized("size", "{name}.shape[{index}]"),
    ),
    (
        r"stride mismatch at index (?P<index>\d+)\. expected (?P<old>\S+), actual (?P<new>\S+)",
        _sized("stride", "{name}.stride({index})"),
    ),
    (r"rank mismatch\. expected (?P<old>\d+), actual (?P<new>\d+)", _of_rank),
    (r"dtype mismatch\. expected (?P<old>\w+), actual (?P<new>\w+)", _of_dtype),
    (r"requires_grad mismatch\. expected requires_grad=(?P<old>\d)", _of_requires_grad),
    (r"dispatch key set mismatch\. expected (?P<old>.*?), actual (?P<new>.*)", _of_dispatch_keys),
    (r"device", _of_device),
)


def _of_state(part: str) -> FailedGuard | None:
    """Parse a check of global state."""
    match = re.match(r"GLOBAL_STATE changed: (?P<names>.*)", part)
    if match:
        name = state_names(match["names"])
        if name == "grad mode":
            sides = ("disabled", "enabled") if torch.is_grad_enabled() else ("enabled", "disabled")
            return FailedGuard("mode", f"grad mode is {sides[0]}", name, *sides)
        return FailedGuard("mode", f"{name} {'are' if ' and ' in name else 'is'} as before", name)
    if "torch_function_mode_stack" in part:
        return FailedGuard("mode", "the torch function modes are as before", "the torch function mode")
    if part.startswith("Cache line invalidated"):
        match = re.search(r"because (?P<name>.*?) got deallocated", part)
        name = match["name"] if match else "an object"
        return FailedGuard("freed", f"{name} is alive", name, "alive", "freed")
    if part.startswith("BACKEND_MATCH"):
        return FailedGuard("backend", "the backend is the same object", "the backend")
    return None


def _of_key(part: str, values: dict[str, Any]) -> FailedGuard | None:
    """Parse a check of a dict's keys."""
    match = re.match(r"KeyError on (?P<access>.*)$", part)
    if match:
        return FailedGuard("keys", f"{match['access']} is there", match["access"], "present", "absent")
    match = re.match(r"(?P<absent>not )?___dict_contains\((?P<key>'[^']*'|[^,]+), (?P<of>.*)\)$", part)
    if match:
        sides = ("absent", "present") if match["absent"] else ("present", "absent")
        name = f"{match['of']}[{match['key']}]"
        is_there, value = evaluate_access(name, values)
        new = value_text(value) if is_there and match["absent"] else sides[1]
        condition = f"{match['key']} {'not in' if match['absent'] else 'in'} {match['of']}"
        return FailedGuard("keys", condition, name, sides[0], new, match["of"])
    match = re.match(r"list\(dict\.keys\((?P<of>.*)\)\) == (?P<keys>.*)$", part)
    if match:
        name = match["of"]
        is_there, value = evaluate_access(name, values)
        new = str(list(value)) if is_there else ""
        return FailedGuard("keys", f"list({name}) == {match['keys']}", name, match["keys"], new, name)
    return None


def _of_identity(part: str, values: dict[str, Any]) -> FailedGuard | None:
    """Parse a check of an object's type or identity, without the address."""
    match = re.match(
        r"___check_(?P<what>type|obj)_id\((?P<name>.*), \d+\)(?:, type=<class '(?P<type>.*?)'>)?", part
    )
    if match is None:
        return None
    name, old = match["name"], (match["type"] or "").rpartition(".")[2].replace("NoneType", "None")
    is_there, value = evaluate_access(name, values)
    new = (type(value).__name__ if value is not None else "None") if is_there else "absent"
    if match["what"] == "type":
        return FailedGuard("type", f"type({name}) is {old or 'the same'}", name, old, new)
    if is_there and isinstance(value, bool) and old in ("", "bool"):
        return FailedGuard("value", f"{name} is {not value}", name, str(not value), str(value))
    if is_there:
        new = value_text(value)
    return FailedGuard("object", f"{name} is the same object", name, "", new)


def _of_code(part: str, values: dict[str, Any]) -> FailedGuard | None:
    """Parse a condition in Python."""
    try:
        tree = ast.parse(part, mode="eval").body
    except SyntaxError:
        return None
    names = value_accesses(tree)
    if not names:
        return None
    first = names[0]
    is_there, value = evaluate_access(first, values)
    new = value_text(value) if is_there else ""
    if any(".size()" in name or ".stride()" in name or ".storage_offset()" in name for name in names):
        return _of_sizes(part, names, values)
    match tree:
        case ast.Compare(left=ast.Call(func=ast.Name(id="len")), comparators=[ast.Constant(value=old)]):
            length = str(len(value)) if is_there and hasattr(value, "__len__") else ""
            return FailedGuard("length", part, f"len({first})", str(old), length, first)
        case ast.UnaryOp(op=ast.Not()):
            length = str(len(value)) if is_there and hasattr(value, "__len__") else new
            return FailedGuard("length", f"len({first}) == 0", f"len({first})", "0", length, first)
        case ast.Compare(ops=[ast.Is() | ast.IsNot()], comparators=[ast.Constant(value=None)]):
            kind = "None" if isinstance(tree.ops[0], ast.Is) else "not None"
            return FailedGuard("type", part, first, kind, new)
        case ast.Compare(ops=[ast.Eq()], comparators=[right]):
            old_value = _literal(right)
            is_number = isinstance(old_value, int | float) and not isinstance(old_value, bool)
            return FailedGuard("number" if is_number else "value", part, first, ast.unparse(right), new)
        case _:
            return FailedGuard("other", part, first, "", new)


def _literal(node: ast.expr) -> object:
    try:
        return ast.literal_eval(node)
    except ValueError:
        return None


def _of_sizes(part: str, names: tuple[str, ...], values: dict[str, Any]) -> FailedGuard:
    """Parse a condition on symbolic sizes; with one size, the condition is the old value."""
    if len(names) > 1:
        now = [(name, *evaluate_access(name, values)) for name in names]
        new = ", ".join(f"{user_name(name)} = {value}" for name, is_there, value in now if is_there)
        return FailedGuard("size relation", part, " and ".join(names), user_name(part), new, names[0])
    is_there, value = evaluate_access(names[0], values)
    match = re.fullmatch(rf"(?P<left>\d+) <= {re.escape(names[0])}(?: <= (?P<right>\d+))?", part)
    old = part.replace(names[0], "").strip()
    if match:
        old = f"{match['left']} to {match['right']}" if match["right"] else f">= {match['left']}"
    old = old.removeprefix("== ")
    kind: CauseKind = "size" if ".size()" in names[0] else "stride" if ".stride()" in names[0] else "other"
    return FailedGuard(kind, part, names[0], user_name(old), str(value) if is_there else "", names[0])
