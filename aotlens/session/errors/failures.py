"""Turn whatever ends a script or a capture into one failure that names the user's line.

Invariant: a traceback shown to the user has no frame of aotlens, torch or Triton, unless the engine is at
fault; then it has all of them.
"""

import os
import sys
import traceback
from collections.abc import Iterator
from itertools import groupby
from pathlib import Path
from types import TracebackType

from aotlens.errors import AotlensError
from aotlens.model.failure import Failure, FailureKind
from aotlens.session.dynamo.errors import (
    ENGINE_FAILS_ALONE,
    dynamo_frames,
    is_dynamo_error,
    original_error,
)
from aotlens.session.errors.unavailable import missing_gpu_reason, missing_value_reason
from aotlens.worker.stacks import is_user_file
from aotlens.worker.syntax_failure import failure_of_syntax

__all__ = ["exit_status", "failure_of", "user_traceback"]

_PACKAGE = str(Path(__file__).absolute().parents[2])
TEXT = "<aotlens "
GENERATED = ("<frozen", TEXT, "<eval_with_key>")
"""Prefixes of names that are no files: Python's own modules, our module texts, Dynamo's graphs."""
PASSES_ERRORS_ON = "__tracebackhide__"
"""A variable, known from pytest, of our functions that only call torch's: their errors are the user's."""
_BETWEEN = tuple(str(Path(_PACKAGE, name)) for name in ("capture", "gpu_emulation", "torch_api"))
"""Packages that the user's own calls of torch pass through."""


def failure_of(error: BaseException, script: str) -> Failure:
    """Return the failure for an exception that left the user's script or the engine."""
    if isinstance(error, SyntaxError) and error.filename is not None and _is_script(error.filename, script):
        return failure_of_syntax(error)
    if isinstance(error, SystemExit):
        return _exit(error, script)
    ours = _aotlens_error(error)
    if ours is not None:
        return _failure_of_ours(ours, error, script)
    unavailable = _unavailable(error, script)
    if unavailable is not None:
        return unavailable
    if _is_engine_fault(error, script):
        message = f"aotlens failed while it compiled code of {script}: {_one_line(error)}"
        return Failure("internal", message, "".join(traceback.format_exception(error)), script, None, 3)
    return _raised(error, script)


def exit_status(error: SystemExit) -> int:
    """Return the exit code with which Python would exit."""
    if error.code is None:
        return 0
    return error.code if isinstance(error.code, int) else 1


def user_traceback(error: BaseException, script: str) -> str:
    """Return the traceback as Python prints it, without frames of aotlens and torch, also in its causes."""
    shown = traceback.TracebackException.from_exception(original_error(error))
    if read := dynamo_frames(error):
        # Dynamo found the error before the line ran: append the frames it was reading to the running ones.
        running = traceback.TracebackException.from_exception(error).stack
        first = (read[0].filename, read[0].name)
        before = [frame for frame in running if (frame.filename, frame.name) != first]
        shown.stack = traceback.StackSummary.from_list([*before, *read])
        shown.__cause__ = shown.__context__ = None
    _strip(shown, script, set())
    return _plain("".join(shown.format()))


def _strip(shown: traceback.TracebackException, script: str, seen: set[int]) -> None:
    """Remove the frames before the script's, and internal frames, from a traceback and its causes.

    Successive frames on one line become one, such as those of a generator expression.  `seen` has the causes
    that are done: errors may name each other as their context.
    """
    if id(shown) in seen:
        return
    seen.add(id(shown))
    entry = next((index for index, frame in enumerate(shown.stack) if _is_script(frame.filename, script)), 0)
    frames = [frame for frame in shown.stack[entry:] if not _is_internal(frame.filename, script)]
    by_line = groupby(frames, key=lambda frame: (frame.filename, frame.lineno))
    shown.stack = traceback.StackSummary.from_list([next(same_line) for _, same_line in by_line])
    for other in (shown.__cause__, shown.__context__, *(shown.exceptions or ())):
        if other is not None:
            _strip(other, script, seen)


def _exit(error: SystemExit, script: str) -> Failure:
    line = _line(error, script)
    text = f" ({error.code})" if isinstance(error.code, str) else ""
    code = f"{exit_status(error)}{text}"
    message = f"{_location(script, line)} called sys.exit with code {code} before the trace was done"
    return Failure("exit", message, user_traceback(error, script), script, line)


def _failure_of_ours(ours: AotlensError, error: BaseException, script: str) -> Failure:
    """Return the failure for an error of ours whose message is written for the user."""
    cause = ours.__cause__ or error
    if ours.exit_code == 3:
        trace = "".join(traceback.format_exception(error))
    elif ours.kind == "user" and ours.__cause__ is not None:
        trace = user_traceback(cause, script)
    else:  # the message already covers what torch raised below
        trace = _user_frames(cause, script)
    if ours.span is not None:
        return Failure(ours.kind, str(ours), trace, ours.span.file, ours.span.line, ours.exit_code)
    ran = _line(cause, script) is not None
    file, line = _last_user_location(cause, script) if ran else (script, None)
    message = str(ours) if line is None else f"{_location(file, line)}: {ours}"
    return Failure(ours.kind, message, trace, file, line, ours.exit_code)


def _user_frames(error: BaseException, script: str) -> str:
    """Return the user's frames that led to the line, without the exception; empty if none of them ran."""
    shown = traceback.TracebackException.from_exception(error)
    shown.__cause__ = shown.__context__ = None
    _strip(shown, script, set())
    ran = any(_is_script(frame.filename, script) for frame in shown.stack)
    frames = "".join(shown.stack.format()) if ran else ""
    return f"Traceback (most recent call last):\n{frames}" if frames else ""


def _raised(error: BaseException, script: str) -> Failure:
    file, line = _last_user_location(error, script)
    users = original_error(error)
    kind = "memory" if isinstance(users, MemoryError) else "user"
    # Dynamo raises its own exception when `fullgraph=True` forbids a graph break.
    if is_dynamo_error(users):
        kind = "unsupported"
    message = f"{_location(file, line)} raised {_one_line(users)}"
    return Failure(kind, message, user_traceback(error, script), file, line)  # type: ignore[arg-type]


def _unavailable(error: BaseException, script: str) -> Failure | None:
    """Return the failure for a resource that the script asks for and that is not available here."""
    kind: FailureKind = "no-gpu"
    missing = missing_gpu_reason(error, script)
    if not missing:
        kind, missing = "no-value", missing_value_reason(error)
    if not missing:
        return None
    file, line = _last_user_location(error, script)
    return Failure(kind, f"{_location(file, line)} {missing}", _user_frames(error, script), file, line)


def _aotlens_error(error: BaseException) -> AotlensError | None:
    """Return our error, which Dynamo or the user's code may have wrapped in its own."""
    for cause in _causes(error):
        if isinstance(cause, AotlensError):
            return cause
    return None


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield the error, then the errors that it wraps: an explicit cause, or Dynamo's inner exception."""
    current: BaseException | None = error
    seen: set[int] = set()
    while current is not None and id(current) not in seen:
        seen.add(id(current))
        yield current
        inner = getattr(current, "inner_exception", None)
        current = inner if isinstance(inner, BaseException) else current.__cause__


def _is_engine_fault(error: BaseException, script: str) -> bool:
    """Return True if the engine itself raised the error, outside of any call of the user's code.

    A user's operator reaches torch through our dispatch modes in `capture` and through the emulated GPU in
    `gpu_emulation`.  An error of torch below them (mismatched sizes, a missing checkpoint) is the user's.
    """
    if dynamo_frames(error):
        return False
    files = [file for file, _ in _frames(error.__traceback__)]
    users = [index for index, file in enumerate(files) if _is_script(file, script) or is_user_file(file)]
    if isinstance(error, RecursionError) and len(users) > len(files) // 2:
        return False
    below = files[users[-1] + 1 :] if users else files
    if any(file.startswith(TEXT) for file in below) and not hasattr(error, ENGINE_FAILS_ALONE):
        # An operator of torch that fails while compiled code runs fails in eager too.
        return below[-1].startswith((_PACKAGE, TEXT))
    engine = [file for file in below if file.startswith(_PACKAGE) and not file.startswith(_session_folder())]
    if not engine:
        return False
    return below[-1].startswith(_PACKAGE) or not all(file.startswith(_BETWEEN) for file in engine)


def _session_folder() -> str:
    return str(Path(_PACKAGE, "session"))


def _last_user_location(error: BaseException, script: str) -> tuple[str, int | None]:
    """Return the innermost frame in the user's own files, or the script without a line."""
    read = ((frame.filename, frame.lineno or 1) for frame in dynamo_frames(error))
    locations = [
        (file, line)
        for file, line in (*_frames(error.__traceback__), *read)
        if _is_script(file, script) or is_user_file(file)
    ]
    return locations[-1] if locations else (script, None)


def _line(error: BaseException, script: str) -> int | None:
    lines = [line for file, line in _frames(error.__traceback__) if _is_script(file, script)]
    return lines[-1] if lines else None


def _frames(tb: TracebackType | None) -> Iterator[tuple[str, int]]:
    for frame, line in traceback.walk_tb(tb):
        code = frame.f_code
        if PASSES_ERRORS_ON not in code.co_varnames or not code.co_filename.startswith(_PACKAGE):
            yield code.co_filename, line


def _is_script(file: str, script: str) -> bool:
    return file == script or (not file.startswith("<") and Path(file).resolve() == Path(script).resolve())


def _is_internal(file: str, script: str) -> bool:
    if _is_script(file, script):
        return False
    files = (getattr(sys.modules.get(name), "__file__", None) for name in ("torch", "triton"))
    folders = [str(Path(package).parent) + os.sep for package in files if package]
    return file.startswith((*GENERATED, _PACKAGE, *folders))


def _location(file: str, line: int | None) -> str:
    return file if line is None else f"{file}:{line}"


def _one_line(error: BaseException) -> str:
    """Return `ValueError: message` with the message's first line only; the traceback has the rest."""
    text = _plain(str(error)).strip().splitlines()
    return f"{type(error).__name__}: {text[0]}" if text else type(error).__name__


def _plain(text: str) -> str:
    """Return the message without the parts that fake tensors and Dynamo add."""
    return text.partition("\n\nfrom user code:")[0].replace("'FakeTensor' object", "'Tensor' object")
