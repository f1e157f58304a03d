"""`aotlens why --try-fixes` and `--fix`: run edited copies of a script, and write the edits that passed.

Invariant: a file is written only if it is unchanged since the script ran.
"""

import argparse
import time
from dataclasses import replace

from aotlens.cli.edited_files import EditedFiles
from aotlens.cli.terminal import say
from aotlens.diagnostics.attach_fixes import with_fixes
from aotlens.fixes.outcomes import SearchResult
from aotlens.model.report import Report
from aotlens.view.quantities import counted

__all__ = ["try_fixes", "write_fixes"]


def try_fixes(
    report: Report, arguments: argparse.Namespace, started: float
) -> tuple[Report, SearchResult | None]:
    """Return the report with the number of possible fixes or, if requested, with the fixes that passed."""
    from aotlens.session.trials import fix_trials

    if report.dynamo is None or arguments.forecast or arguments.vary:
        return report, None
    if not (arguments.fix or arguments.try_fixes):
        count = fix_trials.proposed_count(report.dynamo)
        return replace(report, dynamo=replace(report.dynamo, fixable=count)), None
    if report.incomplete is not None:
        say("aotlens: no fixes are tried, because the script fails")
        return report, None

    def say_progress(line: str) -> None:
        say(f"aotlens: trying fixes: {line}")

    seconds = time.time() - started
    result = fix_trials.try_fixes(arguments.script, arguments.argv, report.dynamo, seconds, say_progress)
    if not result.is_complete:
        say("aotlens: not all fixes were tried: the script takes too long")
    return with_fixes(report, result.fixes, result.together), result


def write_fixes(result: SearchResult | None, arguments: argparse.Namespace, started: float) -> None:
    """Print the diff of the edits that passed, then write them."""
    if result is None or not result.texts:
        say("aotlens: nothing is written: no edit passed")
        return
    files = EditedFiles(result.originals, result.texts)
    files.print_diff(arguments)
    files.write("while the script ran", started)
    count = sum(entry.is_written for entry in result.fixes)
    say(f"aotlens: wrote {count} {'fix' if count == 1 else 'fixes'} to {counted(len(result.texts), 'file')}")
