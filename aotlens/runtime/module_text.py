"""The module text, its lines by wrapper step, and the names that must be bound before it runs."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from aotlens.model.report import Site, WrapperStep


@dataclass(slots=True)
class TextBuilder:
    """Collects lines and remembers which of them each step wrote."""

    lines: list[str] = field(default_factory=list)
    steps: list[WrapperStep] = field(default_factory=list)
    indent: int = 0

    def add(self, *lines: str) -> None:
        """Add lines at the current indentation; an empty string is an empty line."""
        prefix = "    " * self.indent
        self.lines.extend(f"{prefix}{line}" if line else "" for line in lines)

    @contextmanager
    def block(self, heading: str) -> Iterator[None]:
        """Add `heading` and indent what is added within."""
        self.add(heading)
        self.indent += 1
        yield
        self.indent -= 1

    def unpack(self, names: Sequence[str], source: str) -> None:
        """Add the line that binds names to the items of a tuple; `source` alone if there are none."""
        targets = f"{', '.join(names)}{',' if len(names) == 1 else ''}"
        self.add(f"{targets} = {source}" if names else source)

    def raise_if(self, condition: str, error: str, message: str, actual: str = "") -> None:
        """Add a check; `actual` is an expression whose value ends the message."""
        with self.block(f"if {condition}:"):
            self.add(f"raise {error}({message!r}{f' + repr({actual})' if actual else ''})")

    @contextmanager
    def step(
        self, name: str, reason: str, bytes_per_call: int = 0, sites: tuple[Site, ...] = ()
    ) -> Iterator[None]:
        """Record what is added within as one step of the wrapper; a step without lines does not apply."""
        first = len(self.lines) + 1
        yield
        last = len(self.lines)
        applied = last >= first
        self.steps.append(
            WrapperStep(
                name,
                applied,
                reason,
                (first, last) if applied else None,
                bytes_per_call if applied else 0,
                sites if applied else (),
            )
        )

    def text(self) -> str:
        """Return all lines as the source of the module, or of a part of it."""
        return "\n".join(self.lines) + "\n"


@dataclass(frozen=True, slots=True)
class ModuleText:
    """The module as text, and what must be bound to names in it before it runs."""

    source: str
    steps: tuple[WrapperStep, ...]
    bound: dict[str, Any]
    """Names that text cannot define: compiled graphs, large constants, specs of the user's own containers."""
    late: dict[str, Any]
    """Names for which the text has an error or an old value; if the original function is available, they are
    bound to more capable functions, or to its own tensors."""


@dataclass(frozen=True, slots=True)
class LoadedModule:
    """A module text that was loaded."""

    text: ModuleText
    filename: str
    call: Callable[..., Any]
