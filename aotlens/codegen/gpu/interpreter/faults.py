"""Turn an error in a graph's run into a finding that names the kernel and its line."""

import linecache
import traceback
from collections.abc import Iterator
from typing import Any

from aotlens.codegen.gpu.interpreter.memory import OutOfBoundsError
from aotlens.codegen.gpu.interpreter.records import Finding, FindingKind, LaunchLocation

MOST_CHARACTERS = 400


class KernelAssertionError(Exception):
    """A failed assertion of a kernel, such as a bounds check of an index."""


class LaunchError(Exception):
    """A kernel's error, with the launch that raised it."""

    def __init__(self, location: LaunchLocation, file: str, cause: BaseException) -> None:
        super().__init__(str(cause))
        self.location = location
        self.file = file
        """The file with the kernel's source."""
        self.cause = cause


def assert_in_kernel(self: Any, condition: Any, message: str) -> None:
    """Replace the builder's `create_assert`."""
    if not condition:
        raise KernelAssertionError(message)


def finding_of(error: Exception, wrapper: str) -> Finding:
    """Return the finding for an error; `wrapper` is the file of the wrapper that ran."""
    if not isinstance(error, LaunchError):
        return Finding("library", LaunchLocation(""), _line(error, wrapper), _message(error))
    causes = list(_causes(error.cause))
    kind: FindingKind = "not interpreted"
    if any(isinstance(cause, OutOfBoundsError) for cause in causes):
        kind = "out of bounds"
    elif any(isinstance(cause, KernelAssertionError) for cause in causes):
        kind = "failed assertion"
    return Finding(kind, error.location, _line(error.cause, error.file), _message(causes[-1]))


def _causes(error: BaseException) -> Iterator[BaseException]:
    """Yield an error and its causes, down to the first."""
    current: BaseException | None = error
    while current is not None:
        yield current
        current = current.__cause__


def _message(error: BaseException) -> str:
    words = str(error) or type(error).__name__
    known = (OutOfBoundsError, KernelAssertionError, NotImplementedError)
    text = words if isinstance(error, known) else f"{type(error).__name__}: {words}"
    return text[:MOST_CHARACTERS]


def _line(error: BaseException, file: str) -> str:
    """Return the last line of that file in the error's traceback; empty if the file is not in it."""
    lines = [
        frame.lineno
        for cause in _causes(error)
        for frame in traceback.extract_tb(cause.__traceback__)
        if frame.filename == file and frame.lineno is not None
    ]
    return linecache.getline(file, lines[-1]).strip() if lines else ""
