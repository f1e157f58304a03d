"""What the runtime stage gives."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aotlens.model.report import WrapperStep


@dataclass(frozen=True, slots=True)
class ModuleText:
    """The module as text, and what must be bound to names in it before it runs."""

    source: str
    steps: tuple[WrapperStep, ...]
    bound: dict[str, Any]
    """Names that text cannot make: compiled graphs, large constants, specs of the user's own containers."""
    late: dict[str, Any]
    """Names that the text gives a refusal or an old value; where the original function is at hand they can
    do more, or are its own tensors."""


@dataclass(frozen=True, slots=True)
class LoadedModule:
    """A module text that was loaded."""

    text: ModuleText
    filename: str
    call: Callable[..., Any]
