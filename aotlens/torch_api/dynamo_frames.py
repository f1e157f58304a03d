"""Source locations of what Dynamo traces, and of who called the function that it compiles."""

import inspect
import traceback
from itertools import islice
from types import CodeType, FrameType
from typing import Any

from torch._guards import CompileContext

from aotlens.errors import DYNAMO_FRAMES
from aotlens.torch_api.dynamo_events import DynamoLoss, Frames

__all__ = [
    "current_compile",
    "frames_above_dynamo",
    "loss_at",
    "source_name",
    "traced_frames",
    "translator_codes",
    "translator_positions",
]


def translator_positions(translator: Any) -> tuple[tuple[str, int, int, int, int], ...]:
    """(file, line, column, end line, end column) of each frame that Dynamo is in, innermost first."""
    ranges = []
    while translator is not None:
        positions = getattr(translator.current_instruction, "positions", None)
        if positions is not None and positions.lineno is not None:
            ranges.append(
                (
                    translator.f_code.co_filename,
                    positions.lineno,
                    positions.col_offset or 0,
                    positions.end_lineno or positions.lineno,
                    positions.end_col_offset or 0,
                )
            )
        translator = getattr(translator, "parent", None)
    return tuple(ranges)


def translator_codes(translator: Any) -> tuple[tuple[str, str, int], ...]:
    """(qualified name, file, first line) of each function that Dynamo is in, innermost first."""
    codes = []
    while translator is not None:
        code = translator.f_code
        codes.append((code.co_qualname, code.co_filename, code.co_firstlineno))
        translator = getattr(translator, "parent", None)
    return tuple(codes)


def source_name(source: Any) -> str:
    name = source.name
    return str(name() if callable(name) else name)  # a method up to 2.11


def traced_frames() -> tuple[CodeType | None, Frames]:
    """The function that Dynamo compiles now, and the frames that it traces; None where it traces none."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        translator: Any = InstructionTranslator.current_tx()
    except (AttributeError, AssertionError):
        return None, ()
    root = getattr(translator.output, "root_tx", None)
    return (None, ()) if root is None else (root.f_code, summaries(translator))


def summaries(translator: Any) -> Frames:
    names = [qualname for qualname, _, _ in reversed(translator_codes(translator))]
    positions = translator_positions(translator)
    if len(names) != len(positions):  # a frame without positions
        names = [""] * len(positions)
    return tuple(
        traceback.FrameSummary(
            file, line, name, lookup_line=False, end_lineno=end_line, colno=col, end_colno=end_col
        )
        for name, (file, line, col, end_line, end_col) in zip(names, reversed(positions), strict=True)
    )


def frames_above_dynamo() -> Frames:
    """The Python frames that called the function which Dynamo compiles now, with their columns.

    Dynamo's own function for it takes apart the whole code of each frame, which takes longer than a small
    compilation where a script is large.
    """
    summaries_above: list[traceback.FrameSummary] = []
    frame = inspect.currentframe()
    while frame is not None:
        file = frame.f_code.co_filename
        if file.endswith("convert_frame.py"):
            summaries_above.clear()  # what was called from here on is Dynamo's
        elif not file.endswith("eval_frame.py"):
            summaries_above.append(_summary_of(frame))
        frame = frame.f_back
    return tuple(reversed(summaries_above))


def _summary_of(frame: FrameType) -> traceback.FrameSummary:
    code = frame.f_code
    line, end_line, col, end_col = next(
        islice(code.co_positions(), max(0, frame.f_lasti // 2), None), (None, None, None, None)
    )
    return traceback.FrameSummary(
        code.co_filename,
        line or frame.f_lineno,
        code.co_name,
        lookup_line=False,
        end_lineno=end_line,
        colno=col,
        end_colno=end_col,
    )


def loss_at(root: CodeType, error: Any, effect: str | None, translator: Any) -> DynamoLoss:
    frames = tuple(getattr(error, DYNAMO_FRAMES, None) or ())
    if not frames and translator is not None:
        frames = summaries(translator)
    message = str(getattr(error, "msg", "") or error)
    return DynamoLoss(root, (*frames_above_dynamo(), *frames), effect, message, current_compile())


def current_compile() -> str:
    """What Dynamo compiles now, `2/0`; empty where it compiles nothing."""
    current = CompileContext.current_compile_id()
    return "" if current is None else str(current)
