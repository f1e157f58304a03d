"""The arguments and the user's line of each node, from a stage's program text.

Invariant: standard library only. `aotlens.ir.render` writes the text; a node that the text does not contain
has no entry.
"""

import io
import re
import tokenize
from dataclasses import dataclass

from aotlens.model.report import Stage

__all__ = ["NodeText", "node_texts", "without_comment"]

_HEADING = re.compile(r"^ +# (?:backward of )?[^:]+:(?P<line>\d+): (?P<text>.*)$")
_STATEMENT = re.compile(r"^ +(?P<name>\w+) = (?P<value>.*?)(?:; del [\w, ]+)?(?:  # .*)?$")


@dataclass(frozen=True, slots=True)
class NodeText:
    """One statement of a program."""

    value: str
    """The computation as Python: `aten_add_Tensor(x, 2)`."""
    line: str
    """The user's source line without its comment; empty where the compiler added the node."""
    number: int | None
    """The number of that line."""


def node_texts(stage: Stage) -> dict[str, NodeText]:
    """By node."""
    texts: dict[str, NodeText] = {}
    line, number = "", None
    for row in stage.text.splitlines():
        heading = _HEADING.match(row)
        if heading is not None:
            line, number = without_comment(heading["text"]), int(heading["line"])
            continue
        if row.lstrip().startswith("#"):
            line, number = "", None
        statement = _STATEMENT.match(row)
        if statement is not None:
            texts.setdefault(statement["name"], NodeText(statement["value"], line, number))
    return texts


def without_comment(line: str) -> str:
    """Return a source line without its comment, with single blanks."""
    if "#" in line:
        try:
            for token in tokenize.generate_tokens(io.StringIO(line).readline):
                if token.type == tokenize.COMMENT:
                    line = line[: token.start[1]]
                    break
        except (tokenize.TokenError, SyntaxError):  # a part of a statement: its brackets are open
            line = _cut(line)
    return " ".join(line.split())


def _cut(line: str) -> str:
    """Up to the last `#` that no quote follows."""
    before, _, after = line.rpartition("#")
    return line if '"' in after or "'" in after else before
