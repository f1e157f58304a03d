"""Reports in files, and the capture of a report that an exported module was made of."""

from pathlib import Path

from aotlens.errors import ReportError, UserError
from aotlens.model.codec import loads
from aotlens.model.report import Report, Target

__all__ = ["described", "load_report", "same_capture"]


def load_report(file: str | Path) -> Report:
    """Return the report. Raises UserError for an unreadable file, ReportError for one without a report."""
    try:
        return loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{file} is not a report: {error.reason}") from error
    except ReportError as error:
        raise ReportError(f"{file}: {error.message}") from error


def described(target: Target) -> str:
    """Qualified name and the tensors that the user gives: `Block.forward(f32[8, 16])`."""
    tensors = (
        row.tensor.short() for row in target.inputs if row.tensor is not None and row.kind == "UserInput"
    )
    return f"{target.qualname}({', '.join(tensors)})"


def same_capture(targets: tuple[Target, ...], shown: Target) -> Target | None:
    """Return the same capture in another trace of the same script; None when it has none."""
    alike = [target for target in targets if target.qualname == shown.qualname]
    return next((target for target in alike if described(target) == described(shown)), None)
