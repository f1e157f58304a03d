"""Functions that the script gave to `torch.compile` and that Dynamo gave up without a word.

Invariant: a graph break that leaves graphs on both sides is none of these.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

import torch

from aotlens.capture.frames import is_own_file
from aotlens.session.collect import Given
from aotlens.torch_api import frames_left_out
from aotlens.worker.protocol import Failure

BETWEEN = "external_utils.py"
"""Dynamo's own function around a module of torch's that is compiled by itself.

It is one for all of them: once Dynamo has left one out, it skips it for the others too.
"""


def left_out(given: Iterable[Given], script: str) -> Iterator[Failure]:
    """What of all that was given to `torch.compile` has no graph, each once."""
    if "torch._dynamo.utils" not in sys.modules:
        return
    entries = {place: name for one in given for place, name in _entries(one.function)}
    layers, others = _without_graph(given)
    told: set[tuple[str, int]] = set()
    for file, first, reason, at_file, at_line in frames_left_out():
        between = file.endswith(BETWEEN)
        name = next(iter((*layers, *others)), None) if between else entries.get((file, first))
        if name is None or (file, first) in told:
            continue
        told.add((file, first))
        own = at_file is not None and is_own_file(at_file)
        place, line = (at_file, at_line) if own else ((file, first) if is_own_file(file) else (script, None))
        where = f"{place}:{line}" if line is not None else place
        yield _failure(where, name, _told(reason), place, line)
        for other in layers[1:] if between else ():
            why = (
                f"after `{name}` it skips all layers of torch's that are compiled by themselves; "
                "compile a module of your own that holds it, or call `torch.compiler.reset()` before"
            )
            yield _failure(script, other, why, script, None)


def _failure(where: str | None, name: str, why: str, place: str | None, line: int | None) -> Failure:
    message = f"{where}: Dynamo leaves `{name}` out of torch.compile, and there is no graph of it: {why}"
    return Failure("left-out", message, file=place, line=line)


def _without_graph(given: Iterable[Given]) -> tuple[list[str], list[str]]:
    """Of torch's own: the layers that were called, in that order; the functions, called or not."""
    missing = [one for one in given if not one.has_graph and not is_own(one.function)]
    layers = sorted((one for one in missing if one.called), key=lambda one: one.called)
    others = [one for one in missing if not isinstance(one.function, torch.nn.Module)]
    return [_name(one.function) for one in layers], [_name(one.function) for one in others]


def _name(function: Any) -> str:
    function = getattr(function, "__self__", function)  # `layer.compile()` gives the layer's bound method
    return str(getattr(function, "__name__", type(function).__name__))


def _entries(given: Any) -> Iterator[tuple[tuple[str, int], str]]:
    """Where the function, or the module's `forward`, begins, and its name."""
    function = getattr(type(given), "forward", given)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is not None:
        named = function if function is given else type(given)
        yield (code.co_filename, code.co_firstlineno), str(getattr(named, "__name__", named))


def is_own(given: Any) -> bool:
    """Whether the code of what was given is the user's."""
    return any(is_own_file(file) for (file, _), _ in _entries(given))


def _told(reason: str) -> str:
    """Dynamo's words: what it met, why, and its first hint."""
    what, *rest = (line.strip() for line in reason.strip().splitlines())
    explanation = next((line for line in rest if line.startswith("Explanation: ")), "")
    hint = next((line for line in rest if line.startswith("Hint: ")), "")
    why = f" ({explanation.removeprefix('Explanation: ').rstrip('.')})" if explanation else ""
    return f"{what}{why}" + (f"; {hint.removeprefix('Hint: ').rstrip('.')}" if hint else "")
