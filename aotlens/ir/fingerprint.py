"""Values as text, so that equal texts mean equal values.

Invariant: a value whose text does not identify it raises `NoFingerprintError`.
"""

from collections.abc import Callable
from enum import Enum
from types import EllipsisType
from typing import Any

import torch

_ATOMS = (type(None), bool, int, float, complex, str, EllipsisType)
_TORCH_ATOMS = (torch.dtype, torch.device, torch.layout, torch.memory_format)

Special = Callable[[Any], str | None]
"""Returns the text of a value that only the caller knows; None leaves it to `fingerprint_text`."""


class NoFingerprintError(Exception):
    """A value whose text does not identify it; the message names it."""


def fingerprint_text(value: Any, special: Special) -> str:
    """Return the text of a value made of containers, numbers, strings and torch's own settings."""
    if type(value) in _ATOMS or isinstance(value, _TORCH_ATOMS):
        return repr(value)
    special_text = special(value)
    if special_text is not None:
        return special_text
    if isinstance(value, (list, tuple)):
        return f"{type(value).__name__}({', '.join([fingerprint_text(item, special) for item in value])})"
    if type(value) in (set, frozenset):
        return (
            f"{type(value).__name__}({', '.join(sorted(fingerprint_text(item, special) for item in value))})"
        )
    if isinstance(value, dict):
        rows = (
            f"{fingerprint_text(key, special)}: {fingerprint_text(item, special)}"
            for key, item in value.items()
        )
        return f"{{{', '.join(rows)}}}"
    if type(value) is slice:
        parts = (value.start, value.stop, value.step)
        return f"slice({', '.join(fingerprint_text(part, special) for part in parts)})"
    if isinstance(value, Enum) and type(value).__module__.split(".")[0] == "torch":
        return f"{type(value).__qualname__}.{value.name}"
    raise NoFingerprintError(f"a value of type {type(value).__qualname__}")
