"""Arguments that are objects of the user's own: what the graph has built in of them.

Invariant: a number, flag or text that an argument's attribute held when the graph was made is looked at again
at each call; attributes that hold anything else are told apart by the object alone.
"""

from typing import Any

PLAIN_VALUES = (bool, int, float, str, type(None))


def plain_attributes(value: Any) -> dict[str, Any]:
    """The attributes of an object that hold a number, a flag or a text; nothing for other values."""
    if isinstance(value, (*PLAIN_VALUES, type)) or not hasattr(value, "__dict__") or callable(value):
        return {}
    held = vars(value).items()
    return {key: kept for key, kept in held if type(kept) in PLAIN_VALUES and kept == kept}
