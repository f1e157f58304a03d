"""Lines of a module text, with the wrapper steps that they belong to."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from aotlens.model.report import Site, WrapperStep


@dataclass(slots=True)
class TextBuilder:
    """Collects lines and remembers which of them each step wrote."""

    lines: list[str] = field(default_factory=list)
    steps: list[WrapperStep] = field(default_factory=list)
    indent: int = 0

    def add(self, *lines: str) -> None:
        prefix = "    " * self.indent
        self.lines.extend(f"{prefix}{line}" if line else "" for line in lines)

    @contextmanager
    def block(self, heading: str) -> Iterator[None]:
        """`heading` and, one level deeper, what is added within."""
        self.add(heading)
        self.indent += 1
        yield
        self.indent -= 1

    @contextmanager
    def step(
        self, name: str, reason: str, bytes_per_call: int = 0, sites: tuple[Site, ...] = ()
    ) -> Iterator[None]:
        """What is added within is one step of the wrapper; nothing added means that it does not apply."""
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
        return "\n".join(self.lines) + "\n"
