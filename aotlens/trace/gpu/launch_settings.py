"""Read the decorator of a logged kernel: block sizes, signature and hints, as literals.

Invariant: settings that torch evaluates as Python text (grids, launcher arguments) are dropped or replaced,
and no string that stays holds more than names, types and dots.
"""

import ast
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from aotlens.trace.gpu.bodies import constant_value, dotted, unsupported
from aotlens.trace.gpu.subset import DECORATORS, GRID_TYPES, LAUNCH_SETTINGS

__all__ = ["Decorator", "read_decorator"]

_ARGUMENTS = frozenset(
    {
        "configs",
        "custom_kernel",
        "min_elem_per_thread",
        "num_buffers_warp_spec",
        "num_consumer_groups",
        "num_stages",
        "num_warps",
        "reduction_hint",
        "size_hints",
        "tile_hint",
    }
)
_META = frozenset(
    {"constants", "disable_ftz", "enable_fp_fusion", "launch_pdl", "native_matmul", "signature"}
)
_HINTS = re.compile(r"(?:ReductionHint|TileHint|AutotuneHint)\.[A-Z][A-Z0-9_]{0,40}")
_WORD = re.compile(r"[\w.]{0,120}")
_TYPE = re.compile(r"[\w*]{1,40}|tensordesc<\w{1,12}(?:\[[\d, ]{1,80}\])?(?:, ?\[[\d, ]{1,80}\])?>")
_DIVISIBLE = [["tt.divisibility", 16]]
_FIXED_GRID = {
    "grid_type": "FixedGrid",
    "fixed_grid": ["_grid_0", "_grid_1", "_grid_2"],
    "extra_launcher_args": ["_grid_0", "_grid_1", "_grid_2"],
}
"""The grid as arguments of the launch, as Inductor writes it for user kernels."""


class _Written(str):
    """Text that is written as it is: a hint, or an expression of ours."""

    __slots__ = ()

    def __repr__(self) -> str:
        return str(self)


@dataclass(frozen=True, slots=True)
class Decorator:
    """The decorator of one kernel, rebuilt from literals."""

    text: str
    has_grid: bool
    """Whether the grid follows from the arguments of a launch."""


def read_decorator(node: ast.expr, function: ast.FunctionDef) -> Decorator:
    """Return the decorator for the GPU that compiles it; raises UserError for one outside of the subset."""
    if not isinstance(node, ast.Call):
        raise unsupported(node, f"the decorator `{ast.unparse(node)[:80]}`")
    module, _, name = dotted(node.func).rpartition(".")
    if module != "triton_heuristics" or name not in DECORATORS or node.args:
        raise unsupported(node, f"the decorator `{ast.unparse(node.func)[:80]}`")
    arguments = {keyword.arg: keyword.value for keyword in node.keywords if keyword.arg is not None}
    settings = {
        key: _checked(_literal(value), value) for key, value in arguments.items() if key in _ARGUMENTS
    }
    hints = settings.get("size_hints", {})
    if not isinstance(hints, Mapping):
        raise unsupported(node, "`size_hints` as an older torch writes it")
    inductor, has_grid = _inductor_meta(arguments.get("inductor_meta"))
    meta = {"triton_meta": _triton_meta(arguments.get("triton_meta"), function, node)}
    settings |= meta | {"inductor_meta": inductor, "filename": _Written("__file__")}
    words = ", ".join(f"{key}={value!r}" for key, value in settings.items())
    return Decorator(f"@triton_heuristics.{name}({words})", has_grid)


def _inductor_meta(node: ast.expr | None) -> tuple[dict[str, object], bool]:
    """Return the settings, and whether their grid is one that Inductor computes from sizes."""
    entries = dict(_entries(node)) if node is not None else {}
    allowed = {
        key: _checked(_literal(value), value) for key, value in entries.items() if key in LAUNCH_SETTINGS
    }
    grid = entries.get("grid_type")
    grid_type = grid.value if isinstance(grid, ast.Constant) else None
    if grid_type in GRID_TYPES:
        return {**allowed, "grid_type": grid_type}, True
    return {**allowed, **_FIXED_GRID}, grid_type == "FixedGrid"


def _triton_meta(node: ast.expr | None, function: ast.FunctionDef, decorator: ast.expr) -> dict[str, object]:
    entries = dict(_entries(node)) if node is not None else {}
    meta = {key: _literal(value) for key, value in entries.items() if key in _META}
    names = [argument.arg for argument in function.args.args]
    signature = meta.get("signature")
    if not isinstance(signature, Mapping) or not set(signature) <= set(names):
        raise unsupported(decorator, "a signature whose names are not the kernel's arguments")
    for type_ in signature.values():
        if not isinstance(type_, str) or not _TYPE.fullmatch(type_):
            raise unsupported(decorator, f"the argument type `{str(type_)[:80]}`")
    types = {name: signature.get(name, "constexpr") for name in names}
    constants = _checked(meta.get("constants", {}), decorator)
    numbers = {key: value for key, value in meta.items() if isinstance(value, (bool, int))}
    device = _Written("DeviceProperties.create(torch.device('cuda', 0))")
    return {
        **numbers,
        "signature": types,
        "constants": constants,
        "device": device,
        "configs": [_divisibility(entries.get("configs"))],
    }


def _divisibility(node: ast.expr | None) -> dict[tuple[int, ...], object]:
    """Return the arguments that are multiples of 16, in torch's current form or in that of 2.6."""
    match node:
        case ast.List(elts=[ast.Dict() as mapping]):
            value = _literal(mapping)
            keys = value if isinstance(value, Mapping) else {}
            return {key: _DIVISIBLE for key in keys if isinstance(key, tuple)}
        case ast.List(elts=[ast.Call(args=[ast.Dict() as mapping])]):
            value = _literal(mapping)
            properties = value.get("arg_properties") if isinstance(value, Mapping) else None
            indices = properties.get("tt.divisibility", ()) if isinstance(properties, Mapping) else ()
            return {(index,): _DIVISIBLE for index in indices if isinstance(index, int)}
    return {}


def _entries(node: ast.expr) -> Iterator[tuple[str, ast.expr]]:
    """Yield the entries of a dict whose keys are strings."""
    if not isinstance(node, ast.Dict):
        raise unsupported(node, f"the setting `{ast.unparse(node)[:80]}`")
    for key, value in zip(node.keys, node.values, strict=True):
        if not isinstance(key, ast.Constant) or not isinstance(key.value, str):
            raise unsupported(node, "a setting without a name")
        yield key.value, value


def _literal(node: ast.expr) -> object:
    """Return a value of numbers, strings, hints and containers of these."""
    match node:
        case ast.Dict(keys=keys, values=values):
            if None in keys:
                raise unsupported(node, "`**` in a setting")
            pairs = zip(keys, values, strict=True)
            return {_literal(key): _literal(value) for key, value in pairs if key is not None}
        case ast.List(elts=elements):
            return [_literal(element) for element in elements]
        case ast.Tuple(elts=elements):
            return tuple(_literal(element) for element in elements)
        case ast.Set(elts=elements):
            return frozenset(_literal(element) for element in elements)
        case ast.Call(func=ast.Name(id="set" | "OrderedSet"), args=[] | [ast.List(elts=[])], keywords=[]):
            return frozenset()
        case ast.Call(func=ast.Name(id="OrderedSet"), args=[ast.List(elts=elements)], keywords=[]):
            return frozenset(_literal(element) for element in elements)
        case ast.Attribute() if _HINTS.fullmatch(dotted(node)):
            return _Written(dotted(node))
    return constant_value(node)


def _checked(value: object, node: ast.expr) -> object:
    """Return the value; raises UserError for a string in it that could be more than a name."""
    match value:
        case _Written():
            return value
        case str() if not _WORD.fullmatch(value):
            raise unsupported(node, f"the setting {value[:80]!r}")
        case Mapping():
            for pair in value.items():
                _checked(pair, node)
        case list() | tuple() | frozenset():
            for item in value:
                _checked(item, node)
    return value
