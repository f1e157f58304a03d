"""An error of the user's that Dynamo met while it read their code: what it was, and at which line.

Dynamo finds such an error before the line runs, so no frame of the line is in its traceback: Dynamo notes
the frames itself, and wraps what torch said in an exception of its own.
"""

import traceback
from typing import Any

from aotlens.errors import DYNAMO_FRAMES

__all__ = ["ALONE", "dynamo_frames", "is_dynamo_error", "original_error"]

ALONE = "aotlens_alone"
"""The attribute of an error of compiled code that eager does not raise: the fault is ours."""


def is_dynamo_error(error: BaseException) -> bool:
    """Whether Dynamo made the exception itself."""
    return type(error).__module__ == "torch._dynamo.exc"


def original_error(error: BaseException) -> BaseException:
    """What torch or Python said of the user's line; the exception itself where Dynamo wrapped nothing."""
    if type(error).__name__ != "TorchRuntimeError":
        return error
    inner: BaseException | None = error
    seen: set[int] = set()
    while inner is not None and is_dynamo_error(inner) and id(inner) not in seen:
        seen.add(id(inner))
        inner = inner.__cause__ or inner.__context__
    return error if inner is None or is_dynamo_error(inner) else inner


def dynamo_frames(error: BaseException) -> tuple[traceback.FrameSummary, ...]:
    """The frames that Dynamo was reading, outermost first; empty for an error that a running line made."""
    stack: Any = getattr(error, DYNAMO_FRAMES, None) or ()
    return tuple(_named(frame) for frame in stack)


def _named(frame: traceback.FrameSummary) -> traceback.FrameSummary:
    """Under the user's name for the function: what follows a graph break is called otherwise."""
    from aotlens.capture.provenance.frames import (
        user_qualname,
    )  # of the engine, which loads only where code runs

    return traceback.FrameSummary(
        frame.filename,
        frame.lineno,
        user_qualname(frame.name, frame.filename).partition(" after line ")[0],
        end_lineno=frame.end_lineno,
        colno=frame.colno,
        end_colno=frame.end_colno,
    )
