"""A thousand random edits, against a text in which every character knows where it comes from.

What the server shows has to stand on lines that read as they were traced, at the columns that they had there;
and a line that no edit has touched has to show what it showed.
"""

from dataclasses import dataclass
from random import Random

import pytest

from lsp_server.text.positions import Encoding, width
from tests.language_servers import ROOT, STAND_IN
from tests.lsp.sample_session import traced
from tests.lsp.strict_client import FULL_CAPABILITIES, Json, Process, StrictClient
from tests.report.sample import MODEL

TEXT = MODEL.read_text(encoding="utf-8")
LINES = TEXT.split("\n")
EDITS, CHECK_EVERY = 1_000, 20
PIECES = ("", "", "x", "漢", "🙂", "é", "\t", "\n", "a\nb\n", "  ", "\n\n", "def f():\n    pass\n")

Origin = int | None
"""The offset in the traced text that a character has been at since; None for one that was typed."""

Hints = set[tuple[int, int, str]]


@dataclass(slots=True)
class Reference:
    """The text, by slicing; and the origin of each of its characters."""

    text: str
    origins: list[Origin]

    def replace(self, start: int, end: int, new: str) -> None:
        self.text = self.text[:start] + new + self.text[end:]
        self.origins[start:end] = [None] * len(new)

    def position(self, offset: int, encoding: Encoding) -> Json:
        before = self.text[:offset]
        return {"line": before.count("\n"), "character": width(before.rpartition("\n")[2], encoding)}

    def untouched(self) -> dict[int, int]:
        """From each traced line that is still there, character by character, to where it is."""
        found, offset = {}, 0
        starts = {sum(len(one) + 1 for one in LINES[:number]): number for number in range(len(LINES))}
        for number, line in enumerate(self.text.split("\n")):
            own = self.origins[offset : offset + len(line) + 1]
            first = own[0] if own else None
            origin = None if first is None else starts.get(first)
            if origin is not None and own == whole_line(origin):
                found[origin] = number
            offset += len(line) + 1
        return found


def whole_line(number: int) -> list[Origin]:
    """The offsets of a traced line's characters, its end included."""
    start = sum(len(one) + 1 for one in LINES[:number])
    return list(range(start, start + len(LINES[number]) + 1))


def random_change(random: Random, model: Reference, encoding: Encoding) -> Json:
    """One edit, made on the model and told as an editor tells it."""
    start = random.randrange(len(model.text) + 1)
    end = min(len(model.text), start + random.choice((0, 0, 0, 1, 3, 20, 90)))
    new = random.choice(PIECES)
    ends = {"start": model.position(start, encoding), "end": model.position(end, encoding)}
    model.replace(start, end, new)
    return {"range": ends, "text": new}


def random_changes(
    random: Random, model: Reference, undo: list[tuple[str, list[Origin]]], encoding: Encoding
) -> list[Json]:
    """What one message of the editor holds: an undo, everything as it was, or up to three edits."""
    undo.append((model.text, list(model.origins)))
    chance = random.random()
    if chance < 0.02:
        model.text, model.origins = TEXT, list(range(len(TEXT)))
    elif chance < 0.15:
        text, origins = undo[-random.randrange(1, min(len(undo), 9) + 1)]
        model.text, model.origins = text, list(origins)
    else:
        return [random_change(random, model, encoding) for _ in range(random.choice((1, 1, 1, 2, 3)))]
    return [{"text": model.text}]


def shown(client: StrictClient, uri: str) -> Hints:
    hints = client.in_all("inlayHint", uri)
    return {(one["position"]["line"], one["position"]["character"], one["label"]) for one in hints}


@pytest.mark.rotates
@pytest.mark.parametrize("encoding", ["utf-8", "utf-16"])
def test_nothing_is_shown_where_it_does_not_belong(encoding: Encoding) -> None:
    random, undo = Random(7), list[tuple[str, list[Origin]]]()
    model = Reference(TEXT, list(range(len(TEXT))))
    with Process(*STAND_IN) as process:
        client = process.client
        client.initialize(
            ROOT, capabilities={**FULL_CAPABILITIES, "general": {"positionEncodings": [encoding]}}
        )
        uri = traced(client)
        first = shown(client, uri)
        for version in range(2, EDITS + 2):
            client.change(uri, version, *random_changes(random, model, undo, encoding))
            if version % CHECK_EVERY == 0:
                check(client, uri, model, first)
        client.change(uri, EDITS + 2, {"text": TEXT})
        assert shown(client, uri) == first


def check(client: StrictClient, uri: str, model: Reference, first: Hints) -> None:
    """Every hint is right, none is missing on a line that was left alone, and hovers stay on their lines."""
    lines, found = model.text.split("\n"), shown(client, uri)
    right = {(LINES[line], character, label) for line, character, label in first}
    assert {(lines[line], character, label) for line, character, label in found} <= right
    now = model.untouched()
    assert {(now[line], *rest) for line, *rest in first if line in now} <= found
    for line in [number for origin, number in now.items() if origin in (20, 21, 22)]:
        answer = client.at("hover", uri, line, 9)
        assert answer["range"]["start"]["line"] == line
