"""Leaves the app for the editor, and writes fixes into the user's files."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from textual.app import App, SuspendNotSupported

from aotlens.model.edits import edited
from aotlens.view.tabs.diagnostics import difference
from aotlens.view.tabs.source.files import SourceStore
from tui.editor import editor_command
from tui.endings import leaving_interrupts_alone
from tui.screens import ConfirmScreen

if TYPE_CHECKING:  # the first screen of the app loads without the report's records
    from aotlens.model.report import Fix


def open_editor(app: App[int], path: Path, line: int) -> bool:
    """Run the user's editor in this terminal; return False when it could not be run."""
    command = editor_command(str(path), line)
    try:
        with app.suspend(), leaving_interrupts_alone():
            subprocess.run(command, check=False)
    except (OSError, SuspendNotSupported) as error:
        app.notify(f"{command[0]}: {error}; set $EDITOR", title="No editor", severity="error", markup=False)
        return False
    return True


def files_of(fixes: Iterable[Fix], sources: SourceStore) -> tuple[dict[str, Path], dict[str, str]]:
    """Return path and text of the files that the fixes edit, by their names in the report; a file that is not
    on this machine is left out."""
    files = dict.fromkeys(edit.span.file for fix in fixes for edit in fix.edits)
    paths = {file: path for file in files if (path := sources.path(file)) is not None}
    return paths, {file: path.read_text(encoding="utf-8") for file, path in paths.items()}


def confirm_fix(
    app: App[int], fixes: tuple[Fix, ...], sources: SourceStore, done: Callable[[str], None]
) -> None:
    """Show the edits; write the one that the user confirms."""
    paths, texts = files_of(fixes, sources)

    def answered(choice: int | None) -> None:
        if choice is None or choice < 0:
            return
        for file, path in paths.items():
            edits = tuple(edit for edit in fixes[choice].edits if edit.span.file == file)
            if edits:
                path.write_text(edited(texts[file], edits), encoding="utf-8")
                done(file)

    app.push_screen(
        ConfirmScreen(tuple((fix.title, tuple(difference(fix, texts))) for fix in fixes)), answered
    )
