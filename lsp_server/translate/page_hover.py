"""Hovers inside the documents of a trace: a node of a graph, a step of the wrapper, a kernel.

Invariant: the facts are the lines that the terminal app shows for the same row.
"""

from collections.abc import Iterable

from lsprotocol import types

from aotlens.model.report import Target
from aotlens.view.tabs.drawn_graph.graph import StageIndex, fact_lines
from aotlens.view.tabs.kernels import kernel_details
from aotlens.view.tabs.tables.rows import Line
from aotlens.view.tabs.wrapper import ordered_steps, step_at, step_details
from lsp_server.client import Client
from lsp_server.translate.pages import LANGUAGES, Page, node_at
from lsp_server.translate.wording import code, markup

BLANK = " ●"
"""What a part without a word has: the terminal app's mark of the selected node."""
MOST_LINES = 16
"""Facts of a popup; the terminal app has all."""


def page_hover(
    client: Client, page: Page, target: Target, where: tuple[int, int]
) -> types.MarkupContent | None:
    """Return the facts about a position (0-based line and character) of a document, where it has any."""
    lines = tuple(_lines(page, target, where))
    return markup(client, _text(lines)) if lines else None


def _lines(page: Page, target: Target, where: tuple[int, int]) -> Iterable[Line]:
    if page.part == "wrapper":
        steps = ordered_steps(target.wrapper)
        index = step_at(steps, where[0] + 1)
        return step_details(steps[index], target) if index is not None else ()
    stage = target.stage(page.part)
    if stage is not None:
        node = node_at(stage, *where)
        return fact_lines(node, StageIndex(stage), target) if node else ()
    name = page.part.removesuffix(page.suffix) if page.part.endswith(LANGUAGES) else page.part
    kernel = next((kernel for kernel in target.kernels if kernel.name == name), None)
    return kernel_details(kernel, target) if kernel is not None else ()


def _text(lines: tuple[Line, ...]) -> str:
    """Return Markdown: the first line's title in bold, then one item per fact."""
    first, *rest = lines
    head, *facts = (part.text.strip() for part in first.parts if part.text.strip(BLANK))
    items = [f"- {line.text.strip()}" for line in rest if line.text.strip()]
    hidden = [f"- {len(items) - MOST_LINES} more"] if len(items) > MOST_LINES else []
    return "\n".join([" · ".join([f"**{code(head)}**", *facts]), "", *items[:MOST_LINES], *hidden])
