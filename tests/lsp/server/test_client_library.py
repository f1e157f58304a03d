"""Every feature's whole answer as pygls' own client reads it, over stdio and over TCP."""

import asyncio
import json
import re
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from lsprotocol import types
from pygls.lsp.client import LanguageClient
from pygls.protocol import default_converter

from tests.conftest import Golden
from tests.language_servers import ROOT, STAND_IN
from tests.lsp.sample_session import line_of, place_of
from tests.lsp.strict_client import FULL_CAPABILITIES, WAIT_S, Json
from tests.report.sample import MODEL

CONVERTER = default_converter()
URI = MODEL.as_uri()
TOKEN = re.compile(r"(aotlens:/[^\"?]+)\?[\w-]+")
"""The part of a page's address that holds the path of this checkout."""
DOCUMENT = types.TextDocumentIdentifier(URI)


class Recorder(LanguageClient):
    """Keeps what the server sends of its own accord, and answers its requests."""

    def __init__(self) -> None:
        super().__init__("aotlens-tests", "1")
        self.told: dict[str, list[Any]] = {}
        self.news = asyncio.Event()
        for method in (
            types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS,
            types.WINDOW_SHOW_MESSAGE,
            types.WINDOW_LOG_MESSAGE,
            types.WINDOW_SHOW_DOCUMENT,
            types.WINDOW_WORK_DONE_PROGRESS_CREATE,
            types.WORKSPACE_INLAY_HINT_REFRESH,
            types.WORKSPACE_CODE_LENS_REFRESH,
            types.PROGRESS,
        ):
            self.feature(method)(self._keeper(method))

    def _keeper(self, method: str) -> Any:
        def keep(params: Any) -> Any:
            self.told.setdefault(method, []).append(params)
            self.news.set()
            return types.ShowDocumentResult(True) if method == types.WINDOW_SHOW_DOCUMENT else None

        return keep

    async def told_of(self, method: str, number: int) -> Any:
        """The message of that number of a method, once it has come."""
        while len(self.told.get(method, [])) <= number:
            self.news.clear()
            await asyncio.wait_for(self.news.wait(), WAIT_S)
        return self.told[method][number]

    async def progress_of(self, kind: str, after: int) -> Any:
        """The first progress of a kind behind so many of any kind."""
        number = after
        while (found := await self.told_of(types.PROGRESS, number)).value["kind"] != kind:
            number += 1
        return found

    async def run(self, name: str, *arguments: str | None) -> Any:
        params = types.ExecuteCommandParams(name, list(arguments))
        return await self.workspace_execute_command_async(params)


@asynccontextmanager
async def connected(transport: str) -> AsyncIterator[Recorder]:
    client = Recorder()
    if transport == "stdio":
        await client.start_io(sys.executable, *STAND_IN, cwd=ROOT)
        yield client
        await client.stop()
        return
    process = await asyncio.create_subprocess_exec(
        sys.executable, *STAND_IN, "--tcp", cwd=ROOT, stderr=asyncio.subprocess.PIPE
    )
    assert process.stderr is not None
    said = re.search(rb"127\.0\.0\.1:(\d+)", await process.stderr.readline())
    assert said is not None
    await client.start_tcp("127.0.0.1", int(said[1]))
    yield client
    await asyncio.wait_for(process.wait(), WAIT_S)
    await client.stop()


async def answers(client: Recorder) -> dict[str, Json]:
    """What the server answers to every request that it takes, by name."""
    found: dict[str, Any] = {}
    capabilities = CONVERTER.structure(FULL_CAPABILITIES, types.ClientCapabilities)
    options = {"virtualDocuments": True, "terminal": True}
    params = types.InitializeParams(capabilities, root_uri=ROOT.as_uri(), initialization_options=options)
    met = await client.initialize_async(params)
    found["initialize"] = met.server_info.name if met.server_info else None
    client.initialized(types.InitializedParams())
    item = types.TextDocumentItem(URI, "python", 1, MODEL.read_text(encoding="utf-8"))
    client.text_document_did_open(types.DidOpenTextDocumentParams(item))
    lenses = types.CodeLensParams(DOCUMENT)
    found["lenses before"] = await client.text_document_code_lens_async(lenses)
    found["trace"] = await client.run("aotlens.trace", URI)
    found["diagnostics"] = await client.told_of(types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS, 0)
    found["lenses"] = await client.text_document_code_lens_async(lenses)
    whole = types.Range(types.Position(0, 0), types.Position(1000, 0))
    found["hints"] = await client.text_document_inlay_hint_async(types.InlayHintParams(DOCUMENT, whole))
    await _places(client, found)
    await _commands(client, found)
    await client.shutdown_async(None)
    client.exit(None)
    return CONVERTER.unstructure(found)


async def _places(client: Recorder, found: dict[str, Any]) -> None:
    """Requests about a place: in the user's file, and in the graph that it leads to."""
    places = {"expression": "hidden.sigmoid()", "argument": "cache: Tensor", "function": "Block(nn"}
    for name, text in places.items():
        at = types.Position(*place_of(text))
        found[f"hover on {name}"] = await client.text_document_hover_async(types.HoverParams(DOCUMENT, at))
    at = types.Position(*place_of("cache.mul_(0.9)"))
    action = types.CodeActionParams(DOCUMENT, types.Range(at, at), types.CodeActionContext([]))
    found["actions"] = await client.text_document_code_action_async(action)
    operator = types.Position(line_of("gated = hidden"), 23)
    nodes = await client.text_document_definition_async(types.DefinitionParams(DOCUMENT, operator))
    found["definition of an expression"] = nodes
    assert isinstance(nodes, list)
    graph = types.TextDocumentIdentifier(nodes[0].uri)
    node = nodes[0].range.start
    there = types.Position(node.line, 5)
    context = types.ReferenceContext(include_declaration=True)
    found["implementation"] = await client.text_document_implementation_async(
        types.ImplementationParams(DOCUMENT, operator)
    )
    found["definition of a node"] = await client.text_document_definition_async(
        types.DefinitionParams(graph, there)
    )
    found["declaration of a node"] = await client.text_document_declaration_async(
        types.DeclarationParams(graph, there)
    )
    found["references of a node"] = await client.text_document_references_async(
        types.ReferenceParams(context, graph, there)
    )
    symbols = await client.text_document_document_symbol_async(types.DocumentSymbolParams(graph))
    nested = [one for one in symbols or () if isinstance(one, types.DocumentSymbol)]
    found["symbols"] = [(one.name, one.detail) for one in nested]
    text = await client.protocol.send_request_async("aotlens/document", {"uri": graph.uri})
    found["document"] = [text.languageId, text.text.splitlines()[0]]


async def _commands(client: Recorder, found: dict[str, Any]) -> None:
    found["show"] = await client.run("aotlens.show", URI, "score", "inference")
    found["shown"] = await client.told_of(types.WINDOW_SHOW_DOCUMENT, 0)
    found["explain"] = await client.run("aotlens.explain", "AL301")
    found["verify"] = await client.run("aotlens.verify", URI)
    found["verdicts"] = [await client.told_of(types.WINDOW_SHOW_MESSAGE, number) for number in (0, 1)]
    found["targets"] = await client.run("aotlens.targets", URI)
    mark = len(client.told.get(types.PROGRESS, ()))  # on a busy machine other traces show theirs too
    slow = asyncio.ensure_future(client.run("aotlens.trace", URI, "slow"))
    found["progress"] = [await client.progress_of("begin", mark)]
    found["cancel"] = await client.run("aotlens.cancel", URI)
    found["cancelled"] = await slow
    found["progress"] += [await client.progress_of("end", mark)]
    found["progress"][0].value.pop("message")  # the stage that is reached by then
    for message in found["progress"]:
        message.token = "a token"
    found["clear"] = await client.run("aotlens.clear")
    found["diagnostics at last"] = client.told[types.TEXT_DOCUMENT_PUBLISH_DIAGNOSTICS][-1]


@pytest.mark.rotates
@pytest.mark.parametrize("transport", ["stdio", "tcp"])
def test_every_answer_over(transport: str, golden: Golden) -> None:
    async def session() -> dict[str, Json]:
        async with connected(transport) as client:
            return await answers(client)

    found = asyncio.run(asyncio.wait_for(session(), 4 * WAIT_S))
    text = json.dumps(found, indent=1, ensure_ascii=False, default=vars)
    golden("lsp/client_library.json", TOKEN.sub(r"\1", text))
