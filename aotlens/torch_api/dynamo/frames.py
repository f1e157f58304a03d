"""Source locations of what Dynamo traces, and of who called the function that it compiles."""

import inspect
import sys
import traceback
from collections.abc import Iterator
from functools import lru_cache
from itertools import islice
from types import CodeType
from typing import Any

from torch._guards import CompileContext

from aotlens.errors import DYNAMO_FRAMES
from aotlens.torch_api.dynamo.events import DynamoLoss, Frames

__all__ = [
    "current_compile",
    "current_translator",
    "frame_with_columns",
    "frames_above_dynamo",
    "loss_at",
    "skip_reason",
    "source_name",
    "traced_frames",
    "translator_codes",
    "translator_positions",
    "translators",
]


def translators(innermost: Any) -> Iterator[Any]:
    """Yield Dynamo's translators of the functions that it is in, innermost first."""
    while innermost is not None:
        yield innermost
        innermost = getattr(innermost, "parent", None)


def translator_positions(innermost: Any) -> tuple[tuple[str, int, int, int, int], ...]:
    """(file, line, column, end line, end column) of each frame that Dynamo is in, innermost first."""
    ranges = []
    for translator in translators(innermost):
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
    return tuple(ranges)


def translator_codes(translator: Any) -> tuple[tuple[str, str, int], ...]:
    """(qualified name, file, first line) of each function that Dynamo is in, innermost first."""
    codes = [each.f_code for each in translators(translator)]
    return tuple((code.co_qualname, code.co_filename, code.co_firstlineno) for code in codes)


def frame_with_columns(frame: traceback.FrameSummary, translator: Any) -> traceback.FrameSummary:
    """The frame with the columns of its translator's instruction, where torch has none (before 2.13)."""
    if frame.colno is not None or translator is None:
        return frame
    positions = getattr(translator.current_instruction, "positions", None)
    if positions is None or (translator.f_code.co_filename, positions.lineno) != (
        frame.filename,
        frame.lineno,
    ):
        return frame
    return traceback.FrameSummary(
        frame.filename,
        frame.lineno,
        frame.name,
        lookup_line=False,
        end_lineno=positions.end_lineno,
        colno=positions.col_offset,
        end_colno=positions.end_col_offset,
    )


def source_name(source: Any) -> str:
    name = source.name
    return str(name() if callable(name) else name)  # a method up to 2.11


def current_translator() -> Any:
    """Dynamo's translator of the innermost function that it traces; None where it traces none."""
    from torch._dynamo.symbolic_convert import InstructionTranslator

    try:
        root = InstructionTranslator.current_tx()
        return root.output.current_tx  # of a function that it inlines
    except (AttributeError, AssertionError):
        return None


def traced_frames() -> tuple[CodeType | None, Frames]:
    """The function that Dynamo compiles now, and the frames that it traces; None where it traces none."""
    translator = current_translator()
    root = None if translator is None else getattr(translator.output, "root_tx", None)
    return (None, ()) if root is None else (root.f_code, _summaries(translator))


def _summaries(translator: Any) -> Frames:
    """The frames that Dynamo traces, with columns, the outermost first."""
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
        elif not file.endswith("eval_frame.py"):  # the wrapper that the caller called
            summaries_above.append(_summary_at(frame.f_code, frame.f_lasti, frame.f_lineno))
        frame = frame.f_back
    return tuple(reversed(summaries_above))


@lru_cache(maxsize=1024)  # torchao passes a function to `torch.compile` for each parameter of each step
def _summary_at(code: CodeType, byte_offset: int, known_line: int) -> traceback.FrameSummary:
    """Return a frame with its columns; `byte_offset` is its `f_lasti`: each instruction has two bytes."""
    line, end_line, col, end_col = next(
        islice(code.co_positions(), max(0, byte_offset // 2), None), (None, None, None, None)
    )
    return traceback.FrameSummary(
        code.co_filename,
        line or known_line,
        code.co_name,
        lookup_line=False,
        end_lineno=end_line,
        colno=col,
        end_colno=end_col,
    )


def skip_reason(compiler: Any, frame: Any) -> str:
    """Why Dynamo leaves a frame alone, in torch's words from 2.12 on; empty where it compiles the frame.

    `compiler` is the `CatchErrorsWrapper` that Dynamo calls for the frame; 2.11's keeps the reason to itself.
    """
    from torch._dynamo import config, convert_frame, trace_rules

    if frame.f_lasti >= convert_frame.first_real_inst_idx(frame.f_code) + (sys.version_info >= (3, 13)):
        return "frame has already started executing"
    if trace_rules.check(frame.f_code):
        return "frame is in the Dynamo skipfiles list"
    if config.disable:
        return "Dynamo tracing is disabled"
    is_mode_active = (
        convert_frame.any_torch_dispatch_mode_on_stack
        if config.inline_torch_dispatch_torch_compile
        else convert_frame.is_in_any_mode_without_ignore_compile_internals
    )
    exports = getattr(compiler._torchdynamo_orig_backend, "_export", False)
    return "non-infra torch dispatch mode present" if is_mode_active() and not exports else ""


def loss_at(root: CodeType, error: Any, effect: str | None, translator: Any) -> DynamoLoss:
    """The record of an error for which Dynamo leaves code in eager, with the frames above and within Dynamo.

    Dynamo's errors have the frames within; for others the translator knows them.
    """
    frames = tuple(getattr(error, DYNAMO_FRAMES, None) or ())
    if not frames and translator is not None:
        frames = _summaries(translator)
    message = str(getattr(error, "msg", "") or error)
    return DynamoLoss(root, (*frames_above_dynamo(), *frames), effect, message, current_compile())


def current_compile() -> str:
    """What Dynamo compiles now, `2/0`; empty where it compiles nothing."""
    current = CompileContext.current_compile_id()
    return "" if current is None else str(current)
