"""Report a script that does not parse as a failure, before anything starts or is imported.  Stdlib only."""

import traceback
from pathlib import Path

from aotlens.model.failure import Failure

__all__ = ["failure_of_syntax", "syntax_failure"]


def syntax_failure(path: str) -> Failure | None:
    """Return why the script does not parse; None if it does, or if the trace has another failure."""
    try:
        compile(Path(path).read_bytes(), path, "exec", dont_inherit=True)
    except SyntaxError as error:
        return failure_of_syntax(error)
    except (OSError, ValueError):  # a null byte is a ValueError in some releases of Python
        return None
    return None


def failure_of_syntax(error: SyntaxError) -> Failure:
    """Return the failure at the line that the parser names."""
    text = "".join(traceback.format_exception_only(error))
    message = f"{error.filename}:{error.lineno}: syntax error: {error.msg}"
    return Failure("syntax", message, text, error.filename, error.lineno)
