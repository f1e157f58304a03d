"""Parse Dynamo's messages about graph breaks.  Stdlib only: logs are read without torch.

Invariant: an unknown message yields its first line and empty parts, never an error.
"""

import re

from aotlens.model.dynamo import BreakEffect

__all__ = ["EFFECTS", "EXPLICIT", "break_code", "break_reason", "break_sentence", "message_parts"]

EXPLICIT = "GB0025"
"""A call of `torch._dynamo.graph_break()`: the user's, or torch's own, as in `Optimizer.step`."""

EFFECTS: tuple[tuple[str, BreakEffect], ...] = (
    ("Failed to handle graph break gracefully", "function in eager"),
    ("Encountered graph break that we cannot resume from", "rest in eager"),
)
"""Prefixes of Dynamo's reason, and what happens to the function; after any other break it resumes."""

_LINK = re.compile(r"gb/gb(\d+)\.html")
_EXPLANATION = re.compile(r"^\s*Explanation: (.+?)(?=\n\s*Hint: |\n\n|\Z)", re.MULTILINE | re.DOTALL)
_HINT = re.compile(r"^\s*Hint: (.+?)(?=\n\s*Hint: |\n\n|\Z)", re.MULTILINE | re.DOTALL)
_CONSEQUENCE = "*** While handling this graph break"


def break_code(message: str) -> str:
    """Return torch's code for the kind of break, `GB0059`; empty where it has none."""
    link = _LINK.search(message.partition(_CONSEQUENCE)[0]) or _LINK.search(message)
    return f"GB{link[1]}" if link else ""


def message_parts(message: str) -> tuple[str, str, str]:
    """Return what Dynamo encountered, why it cannot trace it, and its first hint, for the root cause."""
    root = message.strip().partition(_CONSEQUENCE)[0]
    what = root.strip().partition("\n")[0].rstrip(".")
    explanation, hint = _EXPLANATION.search(root), _HINT.search(root)
    return what, _first_sentence(explanation[1]) if explanation else "", _joined(hint[1]) if hint else ""


_VAGUE = (
    "Dynamo does not support this",
    "This is",
    "Currently",
    "`torch.compile` currently can't trace this",
)
"""The beginnings of explanations of torch's that do not name what they explain."""


def break_reason(code: str, what: str, explanation: str, in_library: bool) -> str:
    """Return in one sentence what Dynamo encountered, and why it cannot trace it."""
    if code == EXPLICIT and in_library:
        return "the library breaks the graph here on purpose"
    if explanation.startswith(_VAGUE):
        return f"{what}: {explanation}"
    return explanation or what


def break_sentence(message: str) -> str:
    """Return what Dynamo encountered, why it is a break, and its first hint, in one sentence."""
    what, explanation, hint = message_parts(message)
    why = f" ({explanation})" if explanation else ""
    return what + why + (f"; {hint}" if hint else "")


def _first_sentence(text: str) -> str:
    paragraph = _joined(text.partition("\n\n")[0])
    match = re.match(r"(?P<first>.+?[^.eg])\.(?P<quote>`?)(?: [A-Z]|$)", paragraph)
    return match["first"] + match["quote"] if match else paragraph.rstrip(".")


_ADDRESS = re.compile(
    r"<(?:function |built-in method |bound method )?(?P<name>[^<>]+?)(?: of .+?)? at 0x[0-9A-Fa-f]+>"
)


_FOLDER = re.compile(r"(?<=`)/[^`]*/(?:site|dist)-packages/")
"""Where packages are installed, before the path of a package's file."""


def _joined(text: str) -> str:
    text = _ADDRESS.sub(lambda match: match["name"], " ".join(text.split()))
    text = _FOLDER.sub("", text)
    return text.rstrip(".").removesuffix(" (reason: None)")
