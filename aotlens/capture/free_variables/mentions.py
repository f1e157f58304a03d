"""What code mentions: names of classes and functions, where the user's code changes a free variable.

Invariant: code is read and never run.  A name is unread only if no code mentions it except to bind it; code
that looks names up dynamically (`getattr(self, name)`, `vars(self)`) may read every attribute and global.
"""

import dis
import re
import sys
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dis import opmap
from types import CodeType, FunctionType, MethodType
from typing import Any

import torch

from aotlens.capture.free_variables.stores import has_slots
from aotlens.capture.provenance.frames import is_first_party_file
from aotlens.ir.bytecode import instructions_of, span_of_instruction
from aotlens.model.report import Span
from aotlens.model.spans import text_of

STORES = frozenset(opmap[name] for name in ("STORE_ATTR", "STORE_GLOBAL", "STORE_DEREF"))
"""Instructions that bind an attribute, a global or a closure variable."""


def is_user_class(kind: type) -> bool:
    """Return True if a class is defined in the user's own files."""
    module = sys.modules.get(kind.__module__)
    return kind.__module__ == "__main__" or is_first_party_file(getattr(module, "__file__", None) or "")


def defaults_of(function: FunctionType) -> dict[str, Any]:
    """Return the defaults of a function's parameters, by name."""
    defaults = function.__defaults__ or ()
    named = (
        function.__code__.co_varnames[: function.__code__.co_argcount][-len(defaults) :] if defaults else ()
    )
    return {**dict(zip(named, defaults, strict=True)), **(function.__kwdefaults__ or {})}


def _inner_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a function's code, and that of the functions in it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _inner_codes(constant)


def has_attributes(value: Any) -> bool:
    kind = type(value)
    return hasattr(value, "__dict__") or (is_user_class(kind) and has_slots(kind))


def function_of(member: Any) -> Any:
    """Return the function behind a method or a property; any other member unchanged."""
    if isinstance(member, property):
        return member.fget
    return getattr(member, "__func__", member)


def names_of(code: CodeType | None) -> frozenset[str]:
    """Return the names that code reads or writes, including nested functions."""
    codes = _inner_codes(code) if code is not None else ()
    return frozenset(name for inner in codes for name in inner.co_names)


def package_names_of(kind: type) -> frozenset[str]:
    """Return the names in packages' code of a class and its bases, without `object` and `nn.Module`."""
    return frozenset[str]().union(
        *(
            names_of(getattr(function_of(member), "__code__", None))
            for base in kind.__mro__
            if base not in (object, torch.nn.Module) and not is_user_class(base)
            for member in vars(base).values()
        )
    )


LOOKUPS = frozenset(
    {"getattr", "hasattr", "vars", "__dict__", "globals", "eval", "exec", "attrgetter", "__getattribute__"}
)
"""Names by which code may read names that it does not mention."""
ITEM_STORES = frozenset({"STORE_SUBSCR", "STORE_SLICE", "DELETE_SUBSCR"})


def mentions(codes: Iterable[CodeType], names: Collection[Any]) -> Iterator[tuple[CodeType, dis.Instruction]]:
    """Yield the instructions of each code, and of the functions in it, that mentions one of the names."""
    for code in (inner for outer in codes for inner in _inner_codes(outer)):
        texts = (const for const in code.co_consts if isinstance(const, str))
        mentioned = {*code.co_names, *code.co_varnames, *code.co_freevars, *code.co_cellvars, *texts}
        if not mentioned.isdisjoint(names):
            yield from ((code, instruction) for instruction in instructions_of(code))


def unread_names(codes: Sequence[CodeType], names: frozenset[Any]) -> frozenset[Any]:
    """Return those of the names that the code binds and never reads."""
    if not LOOKUPS.isdisjoint(name for code in codes for name in names_of(code)):
        return frozenset()
    instructions = [instruction for _, instruction in mentions(codes, names)]
    bound = (instruction.argval for instruction in instructions if instruction.opcode in STORES)
    read = (instruction.argval for instruction in instructions if instruction.opname.startswith("LOAD"))
    return names.intersection(bound).difference(read)


def write_span(codes: Iterable[CodeType], first: str, key: Any = None) -> Span | None:
    """Return the user's expression that binds a name, or an item of its value; None if none is known."""
    by_rank: list[list[Span]] = [[], [], []]
    after_init = (code for code in codes if code.co_name != "__init__")
    for code, instruction in mentions(after_init, (first,)):
        span = span_of_instruction(code, instruction)
        if span is not None and (rank := _rank(instruction, first, key, text_of(span))) is not None:
            by_rank[rank].append(span)
    return next((span for spans in by_rank for span in spans), None)


def _rank(instruction: dis.Instruction, name: str, key: Any, text: str) -> int | None:
    """Return 0 for a binding of the name or the item, 1 for one of another item, 2 for any other use."""
    if instruction.opcode in STORES and instruction.argval == name:
        return 0
    if instruction.opname in ITEM_STORES and re.search(rf"\b{re.escape(name)}\b", text):
        return 0 if key is not None and f"[{key!r}]" in text.replace('"', "'") else 1
    return 2 if instruction.opname.startswith("LOAD") and instruction.argval == name else None


def user_name(function: Callable[..., Any], store: Any, name: str, span: Span | None) -> str:
    """Return the user's name for what the span binds: `self.last`."""
    root = function.__self__ if isinstance(function, MethodType) else function
    owner = _layer_path(root, store)
    if not owner and span is not None:
        before, dot, _ = text_of(span).partition(f".{name}")
        owner = before if dot and re.fullmatch(r"[\w.()]+", before) else ""
    return f"{owner}.{name}" if owner else name


def _layer_path(root: Any, store: Any) -> str:
    """Return `self.encoder` for the attributes of a layer of the compiled module; empty for other stores."""
    for path, layer in root.named_modules() if isinstance(root, torch.nn.Module) else ():
        owned = vars(layer)
        if any(names is store for names in (owned, layer._modules, layer._parameters, layer._buffers)):
            return ".".join(filter(None, ("self", path)))
    return ""
