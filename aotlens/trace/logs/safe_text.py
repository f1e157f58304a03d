"""Remove from a log's text whatever could act on a terminal, a page or an editor.

Invariant: no control character except tabs and line ends, no mark that changes the direction of text, and no
half of a surrogate pair remains, so that a name can neither move the cursor nor fail to print.  Markup is
escaped where a page is written, as for any other text.
"""

import re

__all__ = ["safe_text", "safe_value"]

_ACTING = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\ud800-\udfff]"
)
MAX_DEPTH = 60


def safe_text(text: str) -> str:
    """Return the text with a replacement character for each unsafe one."""
    return _ACTING.sub("\ufffd", text) if _ACTING.search(text) else text


def safe_value(value: object, depth: int = 0) -> object:
    """Return a JSON value with all its texts made safe; None for deeper nesting than allowed."""
    if isinstance(value, str):
        return safe_text(value)
    if depth > MAX_DEPTH:
        return None
    if isinstance(value, list):
        return [safe_value(item, depth + 1) for item in value]
    if isinstance(value, dict):
        return {safe_text(str(key)): safe_value(item, depth + 1) for key, item in value.items()}
    return value
