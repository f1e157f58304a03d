"""Leaves the app for the editor, and writes fixes: the only places that touch the user's files."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from textual.app import App, SuspendNotSupported

from aotlens.report.records import Fix
from tui.editor import editor_command
from tui.screens import ConfirmScreen
from tui.view.findings import difference, edited
from tui.view.source import SourceStore


def open_editor(app: App[int], path: Path, line: int) -> bool:
    """Run the user's editor in this terminal; False when it could not be run."""
    command = editor_command(str(path), line)
    try:
        with app.suspend():
            subprocess.run(command, check=False)
    except (OSError, SuspendNotSupported) as error:
        app.notify(f"{command[0]}: {error}; set $EDITOR", title="No editor", severity="error", markup=False)
        return False
    return True


def confirm_fix(app: App[int], fix: Fix, sources: SourceStore, done: Callable[[str], None]) -> None:
    """Show the edit; write it when the user says yes."""
    paths = {edit.span.file: sources.path(edit.span.file) for edit in fix.edits}
    texts = {file: path.read_text(encoding="utf-8") for file, path in paths.items() if path is not None}

    def answered(yes: bool | None) -> None:
        if not yes:
            return
        for file, text in texts.items():
            path = paths[file]
            if path is not None:
                path.write_text(
                    edited(text, tuple(edit for edit in fix.edits if edit.span.file == file)),
                    encoding="utf-8",
                )
                done(file)

    app.push_screen(ConfirmScreen(fix.title, tuple(difference(fix, texts))), answered)
