"""`--vary x.shape[0]=1,8,9`: what varies, and its values.  Standard library only.

| the user writes | varies |
|---|---|
| `x.shape[0]=1,8,9` | one size of an argument, and those of other arguments that must follow |
| `batch=1,8,9`, `sequence=16,17` | size 0, or size 1, of all arguments that share it in the recorded call |
| `x.dtype=float32,bfloat16` | the dtype of an argument |
| `x.requires_grad=True,False` | whether an argument requires grad |
| `k=1,2,None` | a number, bool, string or None |
| `eval`, `train`, `no_grad`, `grad` | the mode of the modules, or of autograd |
"""

import ast
import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

__all__ = ["VariedName", "VaryError", "parse_options", "parse_vary"]

What = Literal["size", "shared size", "dtype", "requires_grad", "value", "mode"]

MODES = ("train", "eval", "grad", "no_grad")
SHARED = {"batch": 0, "sequence": 1}
_SIZE = re.compile(r"(?P<name>.+)\.shape\[(?P<dim>-?\d+)\]")
_PROPERTY = re.compile(r"(?P<name>.+)\.(?P<what>dtype|requires_grad)")


class VaryError(ValueError):
    """An option that cannot be parsed; the message says what to write."""


@dataclass(frozen=True, slots=True)
class VariedName:
    """One option."""

    what: What
    name: str
    """The argument by its parameter's name; the mode for a mode."""
    values: tuple[object, ...]
    dim: int = 0

    @property
    def text(self) -> str:
        """Return the left side, as the user writes it."""
        match self.what:
            case "size":
                return f"{self.name}.shape[{self.dim}]"
            case "dtype" | "requires_grad":
                return f"{self.name}.{self.what}"
            case "mode":
                return " or ".join(map(str, self.values))
            case _:
                return self.name


def parse_vary(text: str) -> VariedName:
    """Parse an option; raises VaryError."""
    name, equals, listed = (part.strip() for part in text.partition("="))
    if not equals:
        if name in MODES:
            return VariedName("mode", name, (name,))
        raise VaryError(f"`{text}` has no values: write NAME=VALUE,VALUE or one of {', '.join(MODES)}")
    texts = tuple(filter(None, (value.strip() for value in listed.split(","))))
    if not name or not texts:
        raise VaryError(f"`{text}` has no {'values' if name else 'name'}: write NAME=VALUE,VALUE")
    if name in SHARED:
        return VariedName("shared size", name, tuple(map(_size, texts)), SHARED[name])
    if match := _SIZE.fullmatch(name):
        return VariedName("size", match["name"], tuple(map(_size, texts)), int(match["dim"]))
    if match := _PROPERTY.fullmatch(name):
        if match["what"] == "dtype":
            return VariedName("dtype", match["name"], tuple(text.removeprefix("torch.") for text in texts))
        return VariedName("requires_grad", match["name"], tuple(map(_literal, texts)))
    return VariedName("value", name, tuple(map(_literal, texts)))


def parse_options(texts: Sequence[str]) -> tuple[VariedName, ...]:
    """Parse all options; `train` and `eval`, or `grad` and `no_grad`, are values of one mode."""
    names: dict[object, VariedName] = {}
    for index, name in enumerate(map(parse_vary, texts)):
        is_training = name.name in ("train", "eval")
        key = ("mode", is_training) if name.what == "mode" else ("option", index)
        known = names.get(key)
        names[key] = name if known is None else replace(known, values=(*known.values, *name.values))
    return tuple(names.values())


def _size(text: str) -> int:
    if not text.isdigit():
        raise VaryError(f"a size is a whole number, not `{text}`")
    return int(text)


def _literal(text: str) -> object:
    try:
        value: object = ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text  # a string without quotes
    return value
