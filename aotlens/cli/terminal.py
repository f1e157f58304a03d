"""The only module that writes to the terminal.

Invariant: `say`, `user_error` and the rest write to stderr; only `write_data` writes to stdout or to the file
that the user named.
"""

import os
import sys
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from aotlens.errors import UserError

if TYPE_CHECKING:  # importing rich.console takes 0.1 s
    from rich.console import Console

__all__ = [
    "internal_error",
    "on_terminal",
    "say",
    "show_failure",
    "stderr_console",
    "stdout_on_stderr",
    "user_error",
    "write_data",
]


def say(text: str) -> None:
    """Print one line to the user."""
    sys.stderr.write(f"{text}\n")
    sys.stderr.flush()


def user_error(message: str, exit_code: int = 2) -> int:
    """Print a mistake of the user's and return the exit code."""
    say(f"aotlens: error: {message}")
    return exit_code


def internal_error(error: BaseException) -> int:
    """Print an internal error with everything that helps to report it, and return the exit code."""
    say("".join(traceback.format_exception(error)).rstrip())
    say(f"aotlens: internal error: {type(error).__name__}: {error}")
    say("This is a bug of aotlens, not of your code. Please report it with the lines above;")
    say("`aotlens doctor --report SCRIPT -o bug.md` collects the rest.")
    return 3


def show_failure(message: str, trace: str, exit_code: int) -> int:
    """Print how the user's code, or ours, failed in a trace, and return the exit code."""
    if trace:
        say(trace.rstrip())
    if exit_code == 3:
        say(f"aotlens: internal error: {message}")
        return exit_code
    return user_error(message, exit_code)


def write_data(text: str, file: str | None) -> None:
    """Write a command's result to stdout, or to the file that the user named."""
    if file is None:
        sys.stdout.write(text)
        sys.stdout.flush()
        return
    try:
        Path(file).write_text(text, encoding="utf-8")
    except OSError as error:
        raise UserError(f"cannot write {file}: {error.strerror}") from error


@contextmanager
def stdout_on_stderr() -> Iterator[None]:
    """Send what the user's code prints within the block to stderr, also from native code."""
    sys.stdout.flush()
    saved = os.dup(1)
    os.dup2(2, 1)
    try:
        yield
    finally:
        sys.stdout.flush()
        os.dup2(saved, 1)
        os.close(saved)


def on_terminal() -> bool:
    """Return True if stderr is a terminal."""
    return sys.stderr.isatty()


def stderr_console() -> "Console":
    from rich.console import Console  # takes 0.1 s

    return Console(stderr=True)
