"""Asking a session about the sample model, whose report points into its file."""

import json

from tests.lsp.strict_client import Json, StrictClient
from tests.report.sample import MODEL

LINES = MODEL.read_text(encoding="utf-8").splitlines()


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(LINES) if text in line)


def place_of(text: str, inside: str | None = None) -> tuple[int, int]:
    """The place one character into `text`; all of it is ASCII where this is used."""
    number = line_of(inside or text)
    return number, LINES[number].index(text) + 1


def insert(line: int, character: int, text: str) -> dict[str, Json]:
    place = {"line": line, "character": character}
    return {"range": {"start": place, "end": place}, "text": text}


def shown(value: Json) -> str:
    return json.dumps(value, indent=1, ensure_ascii=False)


def lenses(client: StrictClient, uri: str) -> list[tuple[int, str, str, list[Json]]]:
    found = client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
    return [
        (
            lens["range"]["start"]["line"],
            lens["command"]["title"],
            lens["command"]["command"],
            lens["command"]["arguments"],
        )
        for lens in found
    ]


def hint_list(client: StrictClient, uri: str) -> list[tuple[int, int, str]]:
    return [
        (hint["position"]["line"], hint["position"]["character"], hint["label"])
        for hint in client.in_all("inlayHint", uri)
    ]


def traced(client: StrictClient, qualname: str | None = None) -> str:
    uri = client.open(MODEL)
    assert "targets" in client.command("aotlens.trace", uri, qualname)
    return uri
