"""What `aotlens why` prints of fixes that were tried."""

from collections.abc import Iterator

from rich.text import Text

from aotlens.report.attach_fixes import fixes_of, outcome_sentence
from aotlens.report.dynamo_records import Dynamo
from aotlens.report.layout import Page, heading, paragraph
from aotlens.report.summary import counted
from aotlens.report.why import Problem

__all__ = ["fix_lines", "fix_summary_lines", "fixable_line", "rejected_fix_lines"]

_INDENT = "     "


def fix_summary_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """What all fixes together do."""
    passed = [entry for entry in dynamo.fixes if entry.passed]
    if passed and passed[0].outcome is not None:
        yield from paragraph(outcome_sentence(passed[0].outcome), page.width, "", "green")
    elif dynamo.fixes:
        yield Text("no fix passed: every edit was rejected (--full says why)", "dim")


def fixable_line(dynamo: Dynamo) -> Iterator[Text]:
    """How many edits there are to try, where none was."""
    if dynamo.fixable and not dynamo.fixes:
        what = "1 of these" if dynamo.fixable == 1 else f"{dynamo.fixable} of these"
        yield Text(f"`aotlens why --try-fixes SCRIPT` tries edits for {what} on copies of the script", "dim")


def fix_lines(dynamo: Dynamo, problem: Problem, width: int) -> Iterator[Text]:
    """The fixes that passed for a problem."""
    for entry in fixes_of(dynamo, problem.function, problem.target):
        yield from paragraph(f"✓ tested: {entry.fix.title}", width, _INDENT, "bold green")


def rejected_fix_lines(dynamo: Dynamo, page: Page) -> Iterator[Text]:
    """With `--full`, what was tried in vain."""
    rejected = [entry for entry in dynamo.fixes if not entry.passed]
    if not rejected or not page.is_full:
        return
    yield heading("Tried and rejected", counted(len(rejected), "edit"))
    for entry in rejected:
        line = f"{entry.function}, `{entry.target}`: {entry.fix.title}: {entry.rejected}"
        yield from paragraph(line, page.width, "  ", "dim")
