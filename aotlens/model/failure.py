"""Failures of a trace, as the worker reports them and every front end shows them. Standard library only."""

from dataclasses import dataclass
from typing import Literal

FailureKind = Literal[
    "syntax",  # the script does not parse
    "user",  # the user's code raised
    "exit",  # the user's code called sys.exit or os._exit
    "no-file",
    "no-target",
    "bad-example",
    "no-gpu",  # the script asks for a GPU, and there is none
    "no-value",  # the script reads a tensor that holds no memory
    "left-out",  # Dynamo captures no graph of what the script passed to torch.compile
    "unsupported",  # an op or case that the engine does not support, by name
    "timeout",
    "memory",
    "crash",  # the child died of a signal
    "killed",  # the server was killed from outside
    "cancelled",
    "internal",  # an error in aotlens
]


NOT_THE_FILES: tuple[FailureKind, ...] = ("internal", "killed")
"""Failures for which no file is to blame."""


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a trace gave no report (or only part of one)."""

    kind: FailureKind
    message: str
    """One sentence: what failed, where in the user's code, what to do."""
    traceback: str = ""
    """The user's own frames only; empty when their code did not fail."""
    file: str | None = None
    line: int | None = None
    """1-based; None when no line is to blame."""
    exit_code: int = 2
    """The documented exit code of the command line for this failure: 2 the user's, 3 ours."""
