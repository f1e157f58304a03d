"""Findings for people, as in `aotlens inspect`.

Each reporter of `aotlens check` has `render(checked) -> str`; this one also prints to a console, for colour.
"""

from collections import Counter
from collections.abc import Iterator

from rich.console import Console
from rich.text import Text

from aotlens.diagnostics.checked import Checked
from aotlens.model.report import Severity
from aotlens.render.text.diagnostics import diagnostic_lines
from aotlens.render.text.layout import WIDTH, page_width, print_lines, to_text
from aotlens.view.quantities import counted

__all__ = ["print_findings", "render", "summary"]


def print_findings(checked: Checked, console: Console) -> None:
    print_lines(_lines(checked, page_width(console)), console)


def render(checked: Checked) -> str:
    return to_text(_lines(checked, WIDTH))


def summary(checked: Checked) -> str:
    """`3 findings (1 error, 2 warnings) in 12 targets of 5 files; 2 hidden by comments`."""
    counts = Counter(finding.diagnostic.severity for finding in checked.findings)
    words: tuple[Severity, ...] = ("error", "warning", "hint")
    parts = [counted(counts[word], word) for word in words if counts[word]]
    if counts["information"]:
        parts.append(f"{counts['information']} information")
    by_severity = f" ({', '.join(parts)})" if parts else ""
    targets, files = counted(len(checked.targets), "target"), counted(len(checked.files), "file")
    hidden = f"; {len(checked.hidden)} hidden by comments" if checked.hidden else ""
    return f"{counted(len(checked.findings), 'finding')}{by_severity} in {targets} of {files}{hidden}"


def _lines(checked: Checked, width: int) -> Iterator[Text]:
    for finding in checked.findings:
        yield from diagnostic_lines(finding.diagnostic, width)
        yield Text()
