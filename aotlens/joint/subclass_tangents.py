"""Tangents that are wrapper subclasses.

Invariant: the backward is recorded for the metadata that the wrapper proposes for its tangent
(`__coerce_tangent_metadata__`), or else for the output's metadata.
"""

from collections.abc import Callable
from typing import Any

from aotlens.capture.subclasses import Path, rebuild
from aotlens.ir.program import Node, ProgramInput
from aotlens.ir.subclasses import Wrapped

MakePlain = Callable[[Path, Any], tuple[ProgramInput, Any]]
"""Takes a path and a plain fake tensor; returns the tangent's graph input and a tracked tensor for it."""


def wrapper_tangent(like: Any, make_plain: MakePlain) -> tuple[tuple[ProgramInput, ...], Wrapped, Any]:
    """Return the graph inputs of one tangent, its value, and the wrapper to differentiate with."""
    graph_inputs: list[ProgramInput] = []

    def make_inner(path: Path, inner: Any) -> tuple[Node, Any]:
        graph_input, alias = make_plain(path, inner)
        graph_inputs.append(graph_input)
        return graph_input.node, alias

    like = like.detach()
    if hasattr(like, "__coerce_tangent_metadata__"):
        like = like.__coerce_tangent_metadata__()
    wrapped, tensor = rebuild(like, make_inner)
    return tuple(graph_inputs), wrapped, tensor
