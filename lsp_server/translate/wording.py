"""Words that several features share and that only an editor needs: Markdown, shapes, short op names."""

import re
from collections.abc import Iterable

from lsprotocol import types

from aotlens.model.report import Tensor, WrapperStep
from aotlens.view.quantities import per_call
from lsp_server.client import Client

LONGEST_EXPRESSION = 60
"""Characters of an expression at the start of a hover."""

MOST_SHAPES = 3

STALE = "*From the trace before the last edits.*"
BOLD = re.compile(r"\*\*(\S(?:.*?\S)?)\*\*")
MARKS = re.compile(r"`+|^\*|\*$", re.MULTILINE)
"""Characters that Markdown would add to our texts."""
INLINE_CODE = re.compile(r"(?<!`)(`+)(?!`).*?(?<!`)\1(?!`)", re.DOTALL)
LINK_OR_TAG = re.compile(r"(?<=\])[(\[]|<")
"""What begins the address of a link or image, or a tag; our own texts have none."""


def markup(client: Client, text: str) -> types.MarkupContent:
    """Return our Markdown in a form that the client accepts.

    A fact may come from a stranger's log, so that links, images and tags in it are shown as text.
    """
    if client.markdown:
        return types.MarkupContent(types.MarkupKind.Markdown, without_links(text))
    return types.MarkupContent(types.MarkupKind.PlainText, MARKS.sub("", BOLD.sub(r"\1", text)))


def without_links(text: str) -> str:
    """Return Markdown whose links, images and tags are text; inline code is left as it is."""
    parts, end = [], 0
    for span in INLINE_CODE.finditer(text):
        parts += [LINK_OR_TAG.sub(r"\\\g<0>", text[end : span.start()]), span[0]]
        end = span.end()
    return "".join((*parts, LINK_OR_TAG.sub(r"\\\g<0>", text[end:])))


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
    return " | ".join(every[:MOST_SHAPES]) + (" | …" if len(every) > MOST_SHAPES else "")


def of_op(op: str | None) -> str:
    """Return the operator in brackets; empty without one."""
    return f" ({code(op)})" if op else ""


def step_cost(step: WrapperStep) -> str:
    """Return ` (2.0 KiB per call)`; empty for a step that moves nothing."""
    cost = per_call(step.bytes_per_call)
    return f" ({cost})" if cost else ""
