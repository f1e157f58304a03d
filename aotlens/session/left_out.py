"""Functions that the script gave to `torch.compile` and that Dynamo gave up without a word.

Invariant: a graph break that leaves graphs on both sides is none of these.
"""

import sys
from collections.abc import Iterable, Iterator
from typing import Any

from aotlens.capture.frames import is_own_file
from aotlens.torch_api import frames_left_out
from aotlens.worker.protocol import Failure

BETWEEN = "external_utils.py"
"""Dynamo's own function around a module of torch's that is compiled by itself."""


def left_out(given: Iterable[Any], script: str) -> Iterator[Failure]:
    """What of all that was given to `torch.compile` has no graph, each once."""
    if "torch._dynamo.utils" not in sys.modules:
        return
    entries = {place: name for one in given for place, name in _entries(one)}
    library = [type(one).__name__ for one in given if not _is_own(one)]
    told: set[tuple[str, int]] = set()
    for file, first, reason, at_file, at_line in frames_left_out():
        name = entries.get((file, first)) or (library[0] if library and file.endswith(BETWEEN) else None)
        if name is None or (file, first) in told:
            continue
        told.add((file, first))
        own = at_file is not None and is_own_file(at_file)
        place, line = (at_file, at_line) if own else ((file, first) if is_own_file(file) else (script, None))
        where = f"{place}:{line}" if line is not None else place
        message = f"{where}: Dynamo leaves `{name}` out of torch.compile, and there is no graph of it"
        yield Failure("left-out", f"{message}: {_told(reason)}", file=place, line=line)


def _entries(given: Any) -> Iterator[tuple[tuple[str, int], str]]:
    """Where the function, or the module's `forward`, begins, and its name."""
    function = getattr(type(given), "forward", given)
    while hasattr(function, "__wrapped__"):
        function = function.__wrapped__
    code = getattr(getattr(function, "__func__", function), "__code__", None)
    if code is not None:
        named = function if function is given else type(given)
        yield (code.co_filename, code.co_firstlineno), str(getattr(named, "__name__", named))


def _is_own(given: Any) -> bool:
    return any(is_own_file(file) for (file, _), _ in _entries(given))


def _told(reason: str) -> str:
    """Dynamo's words: what it met, why, and its first hint."""
    what, *rest = (line.strip() for line in reason.strip().splitlines())
    explanation = next((line for line in rest if line.startswith("Explanation: ")), "")
    hint = next((line for line in rest if line.startswith("Hint: ")), "")
    why = f" ({explanation.removeprefix('Explanation: ').rstrip('.')})" if explanation else ""
    return f"{what}{why}" + (f"; {hint.removeprefix('Hint: ').rstrip('.')}" if hint else "")
