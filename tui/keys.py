"""Key bindings: each has a name for the user's keymap, a label for the bottom line, and a sentence.

Invariant: every binding outside of a dialog is made by `bind`, so it has words, and a name by which a keymap
moves it to another key.
"""

from textual.binding import Binding

LEFT, RIGHT = "left_square_bracket,comma,left", "right_square_bracket,full_stop,right"
"""The keys for the previous and the next stage, graph or language."""


def bind(name: str, keys: str, action: str, words: tuple[str, str], *, shown: str | None = None) -> Binding:
    """Return a binding.

    `name` is its name in a keymap; `words` are the label at the bottom, empty to leave it out there, and the
    sentence in the help and in the palette; `shown` is the key as the user sees it.
    """
    label, sentence = words
    return Binding(keys, action, label or sentence, bool(label), shown, tooltip=sentence, id=name)


def sentence_of(binding: Binding) -> str:
    """Return what a binding does, as a sentence; Textual's own bindings may have a description only."""
    return binding.tooltip or binding.description


APP_BINDINGS = (
    bind("theme", "d", "theme", ("", "Switch between the dark and the light theme.")),
    bind("compare", "x", "compare", ("", "Compare with the report or the trace before, line by line.")),
    bind("quit", "q", "quit", ("Quit", "Leave the app.")),
)

WORKBENCH_BINDINGS = (
    bind("focus.next", "tab", "app.focus_next", ("", "Go to the next pane.")),
    bind("focus.previous", "shift+tab", "app.focus_previous", ("", "Go to the previous pane.")),
    bind("filter", "slash", "filter", ("Filter", "Filter the rows, or search the text."), shown="/"),
    bind("help", "question_mark", "keys", ("Keys", "Show all keys of the open tab."), shown="?"),
    bind("edit", "e", "edit", ("Edit", "Open the line in your editor.")),
    bind("copy", "y", "copy", ("Copy", "Copy the row or the line.")),
    bind("save", "s", "save_svg", ("Save SVG", "Save the screen as an SVG file.")),
    bind("zoom", "z", "zoom", ("Zoom", "Fill the screen with this half, or show both.")),
    bind("split.left", "less_than_sign,ctrl+left", "split(-1)", ("", "Make the source smaller."), shown="<"),
    bind(
        "split.right",
        "greater_than_sign,ctrl+right",
        "split(1)",
        ("", "Make the source larger."),
        shown=">",
    ),
    bind("targets", "t", "targets", ("", "Go to the list of targets.")),
    bind("retrace", "r", "retrace", ("Retrace", "Run the script and trace it again.")),
    bind("gpu", "ctrl+g", "gpu", ("", "Choose the GPU whose kernels are shown.")),
    bind("verify", "v", "verify", ("Verify", "Retrace, and compare each target with eager.")),
    bind("cancel", "escape", "escape", ("", "Clear the filter, or stop the running trace.")),
)
"""The keys of the one screen, beside those of its tabs."""
