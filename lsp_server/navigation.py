"""Between the user's expressions and the nodes that they became.

Invariant: `definition` leaves names to the user's own Python server, so a name's definition is not buried
under graph nodes: it answers in graph documents and between names; `implementation` always answers.
"""

from lsprotocol import types

from lsp_server.app import Server
from lsp_server.positions import char_index
from lsp_server.translate.diagnostics import uri_of
from lsp_server.translate.pages import Page, lines_of, nodes_of, parse, source_of
from lsp_server.translate.ranges import span_range
from lsp_server.views import real_path


def on_definition(server: Server, params: types.DefinitionParams) -> list[types.Location] | None:
    uri, place = params.text_document.uri, params.position
    page = _page(server, uri)
    if page is not None:
        return _source(server, page, place.line)
    found = server.document(uri)
    if found is None or _on_name(found[1].line(place.line), place.character, server):
        return None
    return _nodes(server, found[0], place)


def on_implementation(server: Server, params: types.ImplementationParams) -> list[types.Location] | None:
    found = server.document(params.text_document.uri)
    return _nodes(server, found[0], params.position) if found else None


def on_references(server: Server, params: types.ReferenceParams) -> list[types.Location] | None:
    """In a graph document, the user's expression of the node at the place."""
    page = _page(server, params.text_document.uri)
    return _source(server, page, params.position.line) if page else None


def on_document_symbol(
    server: Server, params: types.DocumentSymbolParams
) -> list[types.DocumentSymbol] | None:
    """The nodes of a graph document; the user's own files are left to their Python server."""
    page = _page(server, params.text_document.uri)
    if page is None:
        return None
    symbols = []
    for node, line in nodes_of(server.views, page):
        place = types.Range(types.Position(line, 0), types.Position(line + 1, 0))
        detail = node.tensor.short() if node.tensor else None
        symbols.append(
            types.DocumentSymbol(node.name, types.SymbolKind.Variable, place, place, detail=detail)
        )
    return symbols


def _page(server: Server, uri: str) -> Page | None:
    return parse(uri) or server.page_of(uri)


def _source(server: Server, page: Page, line: int) -> list[types.Location] | None:
    span = source_of(server.views, page, line)
    if span is None:
        return None
    file = real_path(span.file)
    for shown in server.views.of(file):
        place = span_range(shown.view, span)
        if place is not None:
            return [types.Location(uri_of(server.views, file), place)]
    return None


def _nodes(server: Server, path: str, place: types.Position) -> list[types.Location] | None:
    found: list[types.Location] = []
    for shown in server.views.of(path):
        at = shown.view.place_of(place.line, place.character)
        spots = [spot for spot in shown.view.index.at(*at) if shown.has(spot.target)] if at else []
        for spot in [one for one in spots if one.forward or one.backward][:1]:
            for page, line in lines_of(shown.trace.key[0], spot):
                uri = server.page_uri(page)
                if uri is not None:
                    start = types.Position(line, 0)
                    found.append(types.Location(uri, types.Range(start, start)))
    return found or None


def _on_name(line: str, character: int, server: Server) -> bool:
    index = char_index(line, character, server.views.encoding)
    return index < len(line) and (line[index].isalnum() or line[index] == "_")


FEATURES = {
    types.TEXT_DOCUMENT_DEFINITION: on_definition,
    types.TEXT_DOCUMENT_IMPLEMENTATION: on_implementation,
    types.TEXT_DOCUMENT_REFERENCES: on_references,
    types.TEXT_DOCUMENT_DOCUMENT_SYMBOL: on_document_symbol,
}
