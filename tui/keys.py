"""Key bindings: each has a name for the user's keymap, a label for the bottom line, and a sentence.

Invariant: every binding of the app is made by `bind`, so each can be moved to another key and has words.
"""

from textual.binding import Binding, BindingType

LEFT, RIGHT = "left_square_bracket,comma,left", "right_square_bracket,full_stop,right"
"""The keys for the previous and the next stage, graph or language."""


def bind(name: str, keys: str, action: str, words: tuple[str, str], *, shown: str | None = None) -> Binding:
    """Return a binding.

    `name` is its name in a keymap; `words` are the label at the bottom, empty to leave it out there, and the
    sentence in the help and in the palette; `shown` is the key as the user sees it.
    """
    label, sentence = words
    return Binding(keys, action, label or sentence, bool(label), shown, tooltip=sentence, id=name)


def sentence_of(binding: BindingType) -> str:
    """Return what a binding does, as a sentence."""
    return (binding.tooltip or binding.description) if isinstance(binding, Binding) else binding[-1]


APP_BINDINGS = (
    bind("theme", "d", "theme", ("", "Switch between the dark and the light theme.")),
    bind("compare", "x", "compare", ("", "Compare with the report or the trace before, line by line.")),
    bind("quit", "q", "quit", ("Quit", "Leave the app.")),
)
