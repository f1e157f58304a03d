"""Where the script passes functions to `torch.compile`, or calls the `compile()` of a module.

Invariant: a site is an expression in a file of the user's, also if a library that it calls compiles.
"""

import inspect
from collections.abc import Iterator
from types import CodeType
from typing import Any

import torch

from aotlens.capture.provenance.frames import is_first_party_file, is_torch_file
from aotlens.dynamo.spans import span_of, user_frame
from aotlens.model.source import Span
from aotlens.torch_api.dynamo.calls import module_compiled_in_place, passed_callable
from aotlens.torch_api.dynamo.events import Frames

__all__ = ["CompileSites", "code_of"]


class CompileSites:
    """Mutable: filled while the script runs."""

    def __init__(self) -> None:
        self._by_code: dict[tuple[str, int], dict[Span, None]] = {}
        """By file and first line of the function's code."""
        self._by_name: dict[tuple[str, str], dict[Span, None]] = {}
        """Of torch's own layers, by the file of the site and the name of the class."""
        self._without_effect: dict[CodeType, dict[tuple[str, Span], None]] = {}
        """Layers of torch's own whose `compile()` was called, by the code of their `forward`."""
        self._by_id: dict[int, Span] = {}
        """By id of the callable; the id of one that is gone may be another's, which its own site replaces."""

    def add(self, function: Any, frames: Frames) -> None:
        """Record that a function, module or bound method is compiled."""
        index = user_frame(frames)
        if index is None or not is_first_party_file(frames[index].filename):
            return
        span = span_of(frames[index])
        module = module_compiled_in_place(function)
        called = passed_callable(function)
        code = code_of(called)
        self._by_id[id(called)] = span
        if code is None:
            return
        self._by_code.setdefault((code.co_filename, code.co_firstlineno), {})[span] = None
        if isinstance(called, torch.nn.Module) and is_torch_file(code.co_filename):
            name = type(called).__name__
            self._by_name.setdefault((span.file, name), {})[span] = None
            if module is not None:
                self._without_effect.setdefault(code, {})[name, span] = None

    def of_function(self, file: str, line: int, name: str) -> tuple[Span, ...]:
        """Return where the script compiles a function of its own, or a layer of torch's that it calls."""
        return tuple(self._by_code.get((file, line)) or self._by_name.get((file, name)) or ())

    def of_callable(self, function: Any) -> Span | None:
        """Return where the script last compiled this function or module; None where a library does."""
        return self._by_id.get(id(function))

    def skipped_by(self, code: CodeType) -> Iterator[tuple[str, Span]]:
        """Yield name and site of the layers with this `forward`, which Dynamo skips, after `compile()`."""
        yield from self._without_effect.pop(code, ())


def code_of(function: Any) -> CodeType | None:
    """Return the code of a function, or of a module's `forward`."""
    is_module = isinstance(function, torch.nn.Module)
    called = getattr(type(function), "forward", None) if is_module else function
    called = inspect.unwrap(called) if callable(called) else called
    code = getattr(getattr(called, "__func__", called), "__code__", None)
    return code if isinstance(code, CodeType) else None
