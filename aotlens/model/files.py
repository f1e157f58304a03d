"""Reports in files."""

from pathlib import Path

from aotlens.errors import ReportError, UserError
from aotlens.model.codec import loads
from aotlens.model.report import Report

__all__ = ["load_report"]


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
