"""Every error that aotlens raises on purpose, each with its exit code and its location in the user's code.

    AotlensError
    ├── UserError                exit 2   the user's mistake: a path, an option, their script
    │   ├── UnsupportedError     exit 2   a case that we do not support, by name and line
    │   │   ├── RejectedAssertionError          one that programs expect as an AssertionError
    │   │   └── RejectedRuntimeError            one that programs expect as a RuntimeError
    │   ├── TargetError          exit 2   no such file, function or module to compile
    │   ├── ExampleError         exit 2   example arguments that cannot be read or do not fit
    │   ├── UnknownValueError    exit 2   a policy names a value that the program does not have
    │   ├── BackendError         exit 2   a backend that is unknown, or that failed on a graph
    │   └── ReportError          exit 2   a report file that cannot be read
    ├── MismatchError            exit 1   compiled and eager disagree
    └── InternalError            exit 3   a bug of aotlens

Invariant: the message alone tells what failed, where in the user's code, and what to do, so every front
end prints `str(error)` and nothing else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:  # the report package imports this module, so at run time the import would be a cycle
    from collections.abc import Callable

    from aotlens.model.failure import FailureKind
    from aotlens.model.report import Span

__all__ = [
    "AotlensError",
    "BackendError",
    "ExampleError",
    "InternalError",
    "MismatchError",
    "RejectedAssertionError",
    "RejectedRuntimeError",
    "ReportError",
    "TargetError",
    "UnknownValueError",
    "UnsupportedError",
    "UserError",
]

DYNAMO_FRAMES = "real_stack"
"""The attribute of an error to which Dynamo and the engine attach the user's frames."""


class AotlensError(Exception):
    """Base of all errors here; catch it to catch everything that aotlens raises on purpose."""

    exit_code: ClassVar[int] = 3
    default_kind: ClassVar[FailureKind] = "internal"

    def __init__(self, message: str, *, span: Span | None = None, kind: FailureKind | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.span = span
        """The user's expression at fault; None if unknown."""
        self.kind: FailureKind = kind or self.default_kind
        """The failure's name in the worker protocol."""

    def __str__(self) -> str:
        return self.message


class UserError(AotlensError):
    """The user's mistake, or a limit that the user can work around."""

    exit_code = 2
    default_kind: ClassVar[FailureKind] = "user"


class UnsupportedError(UserError):
    """A case that the engine does not support; `aotlens.unsupported` holds the table of all of them."""

    default_kind = "unsupported"

    def __init__(self, case: str, span: Span | None = None, hint: str = "", *, name: str = "") -> None:
        parts = [with_location(f"not supported: {case}", span)]
        if hint:
            parts.append(f"; {hint}")
        super().__init__("".join(parts), span=span)
        self.name = name
        """The case's name in the table."""
        self.case = case
        """What the user's code does, in the user's names."""
        self.hint = hint
        """What to do instead."""

    def __reduce__(self) -> tuple[Callable[..., UnsupportedError], tuple[object, ...]]:
        return _remade, (type(self), self.case, self.span, self.hint, self.name)


def _remade(
    kind: type[UnsupportedError], case: str, span: Span | None, hint: str, name: str
) -> UnsupportedError:
    """Recreate an error that another process sent."""
    return kind(case, span, hint, name=name)


class RejectedAssertionError(UnsupportedError, AssertionError):
    """A rejected input that programs written for `functorch.compile` expect as an AssertionError."""


class RejectedRuntimeError(UnsupportedError, RuntimeError):
    """A rejected input that programs written for `functorch.compile` expect as a RuntimeError."""


class TargetError(UserError):
    """The script or the function to compile was not found, or is not something to compile."""

    default_kind = "no-target"


class ExampleError(UserError):
    """Example arguments that do not parse, or that do not fit the function."""

    default_kind = "bad-example"


class UnknownValueError(UserError):
    """A policy's override that names no value; the message offers what is near."""


class BackendError(UserError):
    """A backend that is not registered, or that failed on a graph."""


class ReportError(UserError):
    """A report that is not JSON, does not follow the schema, or is of a newer schema."""


class MismatchError(AotlensError):
    """The compiled function does not behave as eager does."""

    exit_code = 1


class InternalError(AotlensError):
    """A contract between our own stages was broken."""


def with_location(text: str, span: Span | None) -> str:
    """Return a sentence with the user's source location, if it is known."""
    return text if span is None else f"{text}, at {_location_text(span)}"


def _location_text(span: Span) -> str:
    """Return the location and, in backticks, the source text if the file can be read."""
    from aotlens.model import spans  # inside, because the report package imports this module

    text = spans.text_of(span)
    return f"{spans.location(span)}: `{text}`" if text else spans.location(span)
