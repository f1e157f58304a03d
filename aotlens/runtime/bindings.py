"""What the module text names and cannot make in place: bound when it is loaded, or made by the text itself.

Invariant: a name is bound or made, never both; a text that must stand alone says which names it lacks.
"""

from typing import Any

from aotlens.runtime.builder import TextBuilder
from aotlens.runtime.made import Maker


class Bindings:
    """The names of one module text."""

    def __init__(self, standalone: bool = False) -> None:
        self.bound: dict[str, Any] = {}
        """Values by name, for whoever loads the text."""
        self.maker = Maker() if standalone else None
        """None where the values themselves are wanted, and not others that are equal."""

    def give(self, builder: TextBuilder, name: str, value: Any, note: str) -> None:
        """Write the line that makes the value, or `note` where it is bound."""
        text = self.maker.text(builder, value) if self.maker is not None else None
        if text is not None:
            builder.add(f"{name} = {text}" if text != name else "")
            return
        self.bound[name] = value
        builder.add(f"# {name}: {note}, bound when this module is loaded")

    @property
    def stands_alone(self) -> bool:
        return self.maker is not None
