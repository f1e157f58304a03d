"""Navigation between the user's expressions and their nodes.

Invariant: `definition` leaves names to the user's Python server, so that a name's definition is not buried
under graph nodes: it answers in graph documents and between names; `implementation` and `references`, which
return lists, always answer.
"""

from collections.abc import Iterable

from lsprotocol import types

from aotlens.model.report import Span
from lsp_server.app import Server
from lsp_server.index import contains
from lsp_server.text.positions import char_index
from lsp_server.translate.diagnostics import uri_of
from lsp_server.translate.hover import hover
from lsp_server.translate.page_hover import page_hover
from lsp_server.translate.pages import (
    Page,
    first_line,
    lines_of,
    node_at,
    node_lines,
    nodes_of,
    parse,
    sources_of,
    stage_of,
    steps_of,
    target_of,
    text_of,
    uses_of,
)
from lsp_server.translate.ranges import span_range
from lsp_server.views import real_path

PROGRAMS = ("forward", "backward", "inference", "wrapper")
"""The pages that a target's name leads to; missing ones are left out."""

Locations = list[types.Location] | None
Symbols = list[types.DocumentSymbol] | list[types.SymbolInformation]


def on_definition(server: Server, params: types.DefinitionParams) -> Locations:
    """From a page to the user's expression; from an expression to its nodes and kernels."""
    uri, cursor = params.text_document.uri, params.position
    page = _page(server, uri)
    if page is not None:
        return _sources(server, page, cursor) or None
    opened = server.document(uri)
    if opened is None or _on_name(opened[1].line(cursor.line), cursor.character, server):
        return None
    return _nodes(server, opened[0], cursor) or None


def on_implementation(server: Server, params: types.ImplementationParams) -> Locations:
    """From an expression to its nodes and kernels, from a target's name to its graphs and its wrapper."""
    opened = server.document(params.text_document.uri)
    if opened is None:
        return None
    return _nodes(server, opened[0], params.position) or _programs(server, opened[0], params.position) or None


def on_declaration(server: Server, params: types.DeclarationParams) -> Locations:
    """Return, in a graph, the line that defines the value at the position."""
    page = _page(server, params.text_document.uri)
    stage = stage_of(server.views, page) if page else None
    if page is None or stage is None:
        return None
    node = node_at(stage, params.position.line, _index(server, page, params.position))
    line = node_lines(stage.text).get(node.name) if node else None
    return None if line is None else _in_page(server, page, [line])


def on_hover(server: Server, params: types.HoverParams) -> types.Hover | None:
    """Return the facts about a node of a graph, a step of a wrapper, a kernel, or the user's expression."""
    page = _page(server, params.text_document.uri)
    if page is None:
        opened = server.document(params.text_document.uri)
        return hover(server.views, *opened, params.position) if opened else None
    target = target_of(server.views, page.script, page.qualname)
    where = params.position.line, _index(server, page, params.position)
    contents = page_hover(server.client, page, target, where) if target is not None else None
    return types.Hover(contents) if contents is not None else None


def on_references(server: Server, params: types.ReferenceParams) -> Locations:
    """In a graph, the user's expression and the lines that read the value; elsewhere as `implementation`."""
    page = _page(server, params.text_document.uri)
    if page is None:
        opened = server.document(params.text_document.uri)
        return (_nodes(server, opened[0], params.position) or None) if opened else None
    stage = stage_of(server.views, page)
    node = node_at(stage, params.position.line, _index(server, page, params.position)) if stage else None
    lines = []
    if stage is not None and node is not None:
        own = node_lines(stage.text).get(node.name) if params.context.include_declaration else None
        lines = [*([own] if own is not None else []), *uses_of(stage, node)]
    return [*_sources(server, page, params.position), *_in_page(server, page, lines)] or None


def on_document_symbol(server: Server, params: types.DocumentSymbolParams) -> Symbols | None:
    """Return the nodes of a graph and the steps of a wrapper; the user's files are left to their Python
    server."""
    uri = params.text_document.uri
    page = _page(server, uri)
    if page is None:
        return None
    stage = stage_of(server.views, page)
    symbols = []
    for node, line in nodes_of(stage) if stage else ():
        shape = node.tensor.short() if node.tensor else ""
        symbols.append(_symbol(node.name, types.SymbolKind.Variable, (line, line), shape))
    for step in steps_of(server.views, page):
        first, last = step.lines or (1, 1)
        symbols.append(_symbol(step.name, types.SymbolKind.Event, (first - 1, last - 1), step.reason))
    if server.client.nested_symbols:
        return symbols
    return [
        types.SymbolInformation(
            types.Location(uri, symbol.range), symbol.name, symbol.kind, container_name=page.part
        )
        for symbol in symbols
    ]


def _symbol(name: str, kind: types.SymbolKind, lines: tuple[int, int], detail: str) -> types.DocumentSymbol:
    whole = types.Range(types.Position(lines[0], 0), types.Position(lines[1] + 1, 0))
    head = types.Range(whole.start, types.Position(lines[0] + 1, 0))
    return types.DocumentSymbol(name, kind, whole, head, detail=detail or None)


def _page(server: Server, uri: str) -> Page | None:
    return parse(uri) or server.page_of(uri)


def _index(server: Server, page: Page, cursor: types.Position) -> int:
    """Return the code point of a position in a page."""
    rows = (text_of(server.views, page) or "").splitlines()
    row = rows[cursor.line] if cursor.line < len(rows) else ""
    return char_index(row, cursor.character, server.views.encoding)


def _sources(server: Server, page: Page, cursor: types.Position) -> list[types.Location]:
    spans = sources_of(server.views, page, cursor.line, _index(server, page, cursor))
    return [location for span in spans if (location := _source(server, span))]


def _source(server: Server, span: Span) -> types.Location | None:
    """Return the current location of a span of the newest trace."""
    file = real_path(span.file)
    for shown in server.views.shown_in(file):
        text_range = span_range(shown.view, span)
        if text_range is not None:
            return types.Location(uri_of(server.views, file), text_range)
    return None


def _in_page(server: Server, page: Page, lines: Iterable[int]) -> list[types.Location]:
    uri = server.page_uri(page)
    starts = [types.Position(line, 0) for line in lines]
    return [types.Location(uri, types.Range(start, start)) for start in starts] if uri else []


def _nodes(server: Server, path: str, cursor: types.Position) -> list[types.Location]:
    """Return the nodes and kernels of the innermost expression at a position that has any."""
    locations: list[types.Location] = []
    for shown in server.views.shown_in(path):
        position = shown.view.traced_position(cursor.line, cursor.character)
        spots = (
            [spot for spot in shown.view.index.spots_at(*position) if shown.has(spot.target)]
            if position
            else []
        )
        for spot in [candidate for candidate in spots if candidate.forward or candidate.backward][:1]:
            by_page: dict[Page, list[int]] = {}
            for page, line in lines_of(shown.trace.key[0], spot):
                by_page.setdefault(page, []).append(line)
            for page, lines in by_page.items():
                locations += _in_page(server, page, lines)
    return locations


def _on_name(line: str, character: int, server: Server) -> bool:
    index = char_index(line, character, server.views.encoding)
    return index < len(line) and (line[index].isalnum() or line[index] == "_")


FEATURES = {
    types.TEXT_DOCUMENT_HOVER: on_hover,
    types.TEXT_DOCUMENT_DEFINITION: on_definition,
    types.TEXT_DOCUMENT_DECLARATION: on_declaration,
    types.TEXT_DOCUMENT_IMPLEMENTATION: on_implementation,
    types.TEXT_DOCUMENT_REFERENCES: on_references,
    types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: on_document_symbol,
}


def _programs(server: Server, path: str, cursor: types.Position) -> list[types.Location]:
    """Return the pages of the target whose name is at a position, for editors without lenses."""
    for shown in server.views.shown_in(path):
        position = shown.view.traced_position(cursor.line, cursor.character)
        for target in shown.targets() if position else ():
            signature = shown.view.index.signatures.get(target.qualname)
            if position and signature and contains(signature.name, *position):
                pages = [Page(shown.trace.key[0], target.qualname, part) for part in PROGRAMS]
                return [
                    location
                    for page in pages
                    for location in _in_page(server, page, [first_line(server.views, page)])
                ]
    return []
