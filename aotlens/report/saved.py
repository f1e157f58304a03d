"""A report in a file, as `aotlens inspect --format json -o FILE` writes it."""

from pathlib import Path

from aotlens.errors import ReportError, UserError
from aotlens.report.codec import loads
from aotlens.report.records import Report

__all__ = ["load_report"]


def load_report(file: str | Path) -> Report:
    """Raises UserError for a file that cannot be read, ReportError for one that holds no report."""
    try:
        return loads(Path(file).read_text(encoding="utf-8"))
    except OSError as error:
        raise UserError(f"cannot read {file}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise ReportError(f"{file} is not a report: {error.reason}") from error
    except ReportError as error:
        raise ReportError(f"{file}: {error.message}") from error
