"""Words that several features share and that only an editor needs: Markdown, shapes, short op names."""

import re
from collections.abc import Iterable

from lsprotocol import types

from aotlens.model.report import Tensor, WrapperStep
from aotlens.view.quantities import per_call
from lsp_server.client import Client

LONGEST_EXPRESSION = 60
"""Characters of an expression at the start of a hover."""

STALE = "*From the trace before the last edits.*"
BOLD = re.compile(r"\*\*(\S(?:.*?\S)?)\*\*")
MARKS = re.compile(r"`+|^\*|\*$", re.MULTILINE)
"""Characters that Markdown would add to our texts."""


def markup(client: Client, text: str) -> types.MarkupContent:
    """Return our Markdown in a form that the client accepts."""
    if client.markdown:
        return types.MarkupContent(types.MarkupKind.Markdown, text)
    return types.MarkupContent(types.MarkupKind.PlainText, MARKS.sub("", BOLD.sub(r"\1", text)))


def code(text: str) -> str:
    """Return the text as inline code in Markdown, whatever characters it has."""
    flat = " ".join(text.split())
    return f"`` {flat} ``" if "`" in flat else f"`{flat}`"


def shortened(text: str) -> str:
    """Return the text of an expression on one line, without its middle where it is long."""
    flat = " ".join(text.split())
    half = LONGEST_EXPRESSION // 2
    return flat if len(flat) <= LONGEST_EXPRESSION else f"{flat[:half]}…{flat[-half:]}"


def shapes(tensors: Iterable[Tensor]) -> str:
    """Return the distinct short forms, since one expression may run with several shapes."""
    every = list(dict.fromkeys(tensor.short() for tensor in tensors))
    return " | ".join(every[:3]) + (" | …" if len(every) > 3 else "")


def of_op(op: str | None) -> str:
    """Return the operator in brackets; empty without one."""
    return f" ({code(op)})" if op else ""


def step_cost(step: WrapperStep) -> str:
    """Return ` (2.0 KiB per call)`; empty for a step that moves nothing."""
    cost = per_call(step.bytes_per_call)
    return f" ({cost})" if cost else ""
