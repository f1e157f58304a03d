"""The answer to `initialize` before the server is loaded: the server's own, once, and only if it is known."""

import io
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO, cast

from aotlens.disk_cache import Store
from lsp_server.first_answer import KIND, LENGTH, Replayed, answer_first
from tests.language_servers import REAL, ROOT
from tests.lsp.strict_client import FULL_CAPABILITIES

Json = Any


def framed(*messages: Json) -> bytes:
    bodies = (json.dumps({"jsonrpc": "2.0", **message}).encode() for message in messages)
    return b"".join(b"Content-Length: %d\r\n\r\n%s" % (len(body), body) for body in bodies)


def session(capabilities: Json) -> bytes:
    params = {"processId": None, "rootUri": ROOT.as_uri(), "capabilities": capabilities}
    return framed(
        {"id": 1, "method": "initialize", "params": params},
        {"id": 2, "method": "shutdown"},
        {"method": "exit"},
    )


def messages(data: bytes) -> Iterator[Json]:
    stream = io.BytesIO(data)
    while line := stream.readline():
        length = LENGTH.fullmatch(line)
        assert length is not None
        while stream.readline() != b"\r\n":
            pass
        yield json.loads(stream.read(int(length[1])))


def serve(folder: Path, capabilities: Json = FULL_CAPABILITIES) -> list[Json]:
    """Return every answer of a server whose client has written all of its messages beforehand."""
    file = folder / "session"
    file.write_bytes(session(capabilities))
    with file.open("rb") as stdin:
        done = subprocess.run(
            [sys.executable, *REAL],
            stdin=stdin,
            stdout=subprocess.PIPE,
            env={**os.environ, "AOTLENS_CACHE_DIR": str(folder / "cache")},
            cwd=ROOT,
            timeout=300,
            check=True,
        )
    return [message for message in messages(done.stdout) if "id" in message]


def test_the_second_start_gives_the_stored_answer_and_corrects_a_wrong_one(tmp_path: Path) -> None:
    first, shutdown = serve(tmp_path)
    assert (first["id"], shutdown["id"]) == (1, 2)
    store = Store(tmp_path / "cache")
    (entry,) = (tmp_path / "cache" / KIND).glob("*/*")
    key = entry.name
    assert store.get(KIND, key) == first["result"]

    store.put(KIND, key, {"capabilities": {}, "serverInfo": {"name": "stored"}})
    again, shutdown = serve(tmp_path)  # once: no second answer to the same request
    assert (again["result"]["serverInfo"], shutdown["id"]) == ({"name": "stored"}, 2)
    assert serve(tmp_path)[0] == {**first, "jsonrpc": "2.0"}
    other = serve(tmp_path, {"general": {"positionEncodings": ["utf-8"]}})[0]["result"]["capabilities"]
    assert (first["result"]["capabilities"]["positionEncoding"], other["positionEncoding"]) == (
        "utf-16",
        "utf-8",
    )


def test_bytes_that_are_no_request_reach_the_server_as_they_came() -> None:
    for data in (
        b"hello\r\n" + session({}),
        framed({"method": "initialized"}),
        b"Content-Length: 3\r\n\r\n[}]",
    ):
        read_end, write_end = os.pipe()
        os.write(write_end, data)
        os.close(write_end)
        answers = io.BytesIO()
        with os.fdopen(read_end, "rb") as reader:
            replayed, first = answer_first(reader, answers)
            assert first is None
            assert not answers.getvalue()
            assert replayed.read(len(data)) == data


def test_a_line_or_a_content_may_begin_in_the_bytes_read_first() -> None:
    replayed = Replayed(b"Content-", cast(BinaryIO, io.BytesIO(b"Length: 2\r\n\r\n{}")))
    assert [replayed.readline(), replayed.readline(), replayed.read(2)] == [
        b"Content-Length: 2\r\n",
        b"\r\n",
        b"{}",
    ]
