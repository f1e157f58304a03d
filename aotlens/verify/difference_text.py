"""The sides of a difference in words."""

from torch import Tensor

from aotlens.verify.tensors.values import (
    class_name,
    metadata,
    preview_values,
)

WRITABLE = "can be changed in place"
"""The text for a result that its caller may change in place."""


def count(number: int, noun: str) -> str:
    return f"{number} {noun}" + ("" if number == 1 else "s")


def gradient_text(gradient: Tensor | None) -> str:
    return "None" if gradient is None else "a gradient " + preview_values(gradient)


def gradient_kind_text(gradient: Tensor) -> str:
    return f"a `{class_name(gradient)}` {metadata(gradient)}"


def identity_text(name: str | None) -> str:
    return f"the same tensor as {name}" if name else "a tensor of its own"


def view_text(name: str | None) -> str:
    return f"a view of {name}" if name else "no view of an input"


def aliases_text(names: frozenset[str]) -> str:
    return "shares memory with " + ", ".join(sorted(names)) if names else "shares memory with nothing"


def version_text(bumped: bool) -> str:
    return "changed in place" if bumped else "left alone"


def write_text(kind: type[BaseException] | None) -> str:
    return f"rejects an in-place write with {kind.__name__}" if kind else WRITABLE


def write_effects_text(names: frozenset[str]) -> str:
    return "an in-place change shows in " + (", ".join(sorted(names)) or "nothing else")
