"""Find the error and the line of the user's that made Dynamo fail while it read their code.

Dynamo finds such an error before the line runs, so the traceback has no frame of it.  Dynamo records the
frames itself and wraps torch's error in its own exception.
"""

import traceback
from typing import Any

from aotlens.errors import DYNAMO_FRAMES
from aotlens.model.report import AFTER

__all__ = ["ENGINE_FAILS_ALONE", "dynamo_frames", "is_dynamo_error", "original_error"]

ENGINE_FAILS_ALONE = "aotlens_engine_fails_alone"
"""Set on an error of compiled code that eager does not raise: the engine is at fault."""


def is_dynamo_error(error: BaseException) -> bool:
    """Return True if Dynamo created the exception itself."""
    return type(error).__module__ == "torch._dynamo.exc"


def original_error(error: BaseException) -> BaseException:
    """Return the error of torch or Python that Dynamo wrapped, or the exception itself."""
    if type(error).__name__ != "TorchRuntimeError":
        return error
    inner: BaseException | None = error
    seen: set[int] = set()
    while inner is not None and is_dynamo_error(inner) and id(inner) not in seen:
        seen.add(id(inner))
        inner = inner.__cause__ or inner.__context__
    return error if inner is None or is_dynamo_error(inner) else inner


def dynamo_frames(error: BaseException) -> tuple[traceback.FrameSummary, ...]:
    """Return the frames that Dynamo was reading, outermost first; empty for an error of a running line."""
    stack: Any = getattr(error, DYNAMO_FRAMES, None) or ()
    return tuple(_named(frame) for frame in stack)


def _named(frame: traceback.FrameSummary) -> traceback.FrameSummary:
    """Return the frame with the user's name for the function: resume functions have other names."""
    from aotlens.capture.provenance.frames import (
        user_qualname,
    )  # part of the engine, which is loaded only where code runs

    return traceback.FrameSummary(
        frame.filename,
        frame.lineno,
        user_qualname(frame.name, frame.filename).partition(AFTER)[0],
        end_lineno=frame.end_lineno,
        colno=frame.colno,
        end_colno=frame.end_colno,
    )
