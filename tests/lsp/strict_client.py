"""A protocol client that forgives nothing: any byte on the wire that is no framed message fails the test.

The usual clients skip what they cannot read, and so hide the stray print that makes VS Code lose the stream.
"""

import json
import re
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Self, cast

from tests.forked import Piped
from tests.language_servers import ROOT, STAND_IN

HEADER = re.compile(rb"Content-Length: (\d+)\r\n(?:Content-Type: [^\r\n]+\r\n)?\r\n")
WAIT_S = 120.0
"""More than any answer takes, also on a busy machine: only what never comes waits so long."""
Json = Any

FULL_CAPABILITIES: dict[str, Json] = {
    "general": {"positionEncodings": ["utf-16"]},
    "window": {"workDoneProgress": True, "showDocument": {"support": True}},
    "workspace": {
        "configuration": True,
        "inlayHint": {"refreshSupport": True},
        "codeLens": {"refreshSupport": True},
        "workspaceEdit": {"documentChanges": True},
    },
    "textDocument": {
        "publishDiagnostics": {
            "relatedInformation": True,
            "versionSupport": True,
            "codeDescriptionSupport": True,
            "tagSupport": {"valueSet": [1, 2]},
        },
        "hover": {"contentFormat": ["markdown", "plaintext"]},
        "codeLens": {},
        "codeAction": {
            "codeActionLiteralSupport": {"codeActionKind": {"valueSet": ["quickfix", "refactor", "source"]}},
            "isPreferredSupport": True,
        },
        "documentSymbol": {"hierarchicalDocumentSymbolSupport": True},
    },
}


class RefusedError(Exception):
    """The server answered a request with an error."""

    def __init__(self, error: dict[str, Json]) -> None:
        super().__init__(f"{error['code']}: {error['message']}")
        self.code = error["code"]


class StrictClient:
    """One session; every message of the server is kept, in order, in `received`."""

    def __init__(self, reader: BinaryIO, writer: BinaryIO) -> None:
        self.received: list[dict[str, Json]] = []
        self.opened: list[str] = []
        self.settings: dict[str, Json] | None = None
        """What the server gets when it asks for the configuration."""
        self.choice: str | None = None
        """The action that the user chooses in a message of the server; None for a closed message."""
        self.leaves_open: str | None = None
        """The server's requests of this method are not answered; `reply` does."""
        self._reader = reader
        self._writer = writer
        self._next = 0
        self._broken: str | None = None
        self._ended = False
        self._news = threading.Condition()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    # Asking and telling

    def request(self, method: str, params: Json = None, timeout_s: float = WAIT_S) -> Json:
        return self.answer(self.send(method, params), timeout_s)

    def send(self, method: str, params: Json = None) -> int:
        """Send a request without waiting; `answer` takes its number."""
        self._next += 1
        self._write({"id": self._next, "method": method, "params": params})
        return self._next

    def answer(self, number: int, timeout_s: float = WAIT_S) -> Json:
        def fits(message: dict[str, Json]) -> bool:
            return message.get("id") == number and "method" not in message

        message = self.wait(fits, f"the answer to request {number}", timeout_s)
        if "error" in message:
            raise RefusedError(message["error"])
        return message["result"]

    def notify(self, method: str, params: Json = None) -> None:
        self._write({"method": method, "params": params})

    def write_raw(self, body: bytes) -> None:
        self.write_bytes(b"Content-Length: %d\r\n\r\n%s" % (len(body), body))

    def write_bytes(self, data: bytes) -> None:
        self._writer.write(data)
        self._writer.flush()

    # Waiting

    def wait(
        self, fits: Callable[[dict[str, Json]], bool], what: str, timeout_s: float = WAIT_S, after: int = 0
    ) -> dict[str, Json]:
        """The first message after the first `after` ones that fits."""
        end = time.monotonic() + timeout_s
        with self._news:
            while True:
                if self._broken:
                    raise AssertionError(self._broken)
                found = next((message for message in self.received[after:] if fits(message)), None)
                if found is not None:
                    return found
                left = end - time.monotonic()
                if left <= 0 or self._ended:
                    seen = [message.get("method", message.get("id")) for message in self.received[after:]]
                    why = "the server ended" if self._ended else f"nothing in {timeout_s} s"
                    raise AssertionError(f"waiting for {what}: {why}; received {seen}")
                self._news.wait(left)

    def notification(self, method: str, after: int = 0, **params: Json) -> Json:
        """The parameters of the first message of a method whose parameters include those given."""

        def fits(message: dict[str, Json]) -> bool:
            found = message.get("params") or {}
            return message.get("method") == method and all(found.get(k) == v for k, v in params.items())

        return self.wait(fits, f"{method} {params}", after=after)["params"]

    def all(self, method: str) -> list[Json]:
        return [message.get("params") for message in self.received if message.get("method") == method]

    def diagnostics(self, uri: str, after: int = 0) -> Json:
        return self.notification("textDocument/publishDiagnostics", after, uri=uri)

    def findings(self, uri: str, after: int = 0) -> Json:
        """The first diagnostics of a file that are not empty: an edit may have emptied those before."""

        def fits(message: dict[str, Json]) -> bool:
            params = message.get("params") or {}
            return params.get("uri") == uri and bool(params.get("diagnostics"))

        return self.wait(fits, f"findings in {uri}", after=after)["params"]["diagnostics"]

    # Sessions

    def initialize(self, root: Path, options: Json = None, capabilities: Json = None) -> dict[str, Json]:
        result = self.request(
            "initialize",
            {
                "processId": None,
                "rootUri": root.as_uri(),
                "capabilities": FULL_CAPABILITIES if capabilities is None else capabilities,
                "initializationOptions": options,
            },
        )
        self.notify("initialized", {})
        return cast(dict[str, Json], result)

    def open(self, path: Path, text: str | None = None, version: int = 1) -> str:
        uri = path.as_uri()
        content = path.read_bytes().decode() if text is None else text
        item = {"uri": uri, "languageId": "python", "version": version, "text": content}
        self.notify("textDocument/didOpen", {"textDocument": item})
        self.opened.append(uri)
        return uri

    def change(self, uri: str, version: int, *changes: Json) -> None:
        identifier = {"uri": uri, "version": version}
        self.notify("textDocument/didChange", {"textDocument": identifier, "contentChanges": list(changes)})

    def command(self, name: str, *arguments: Json) -> Json:
        return self.request("workspace/executeCommand", {"command": name, "arguments": list(arguments)})

    def at(self, method: str, uri: str, line: int, character: int, **more: Json) -> Json:
        place = {"textDocument": {"uri": uri}, "position": {"line": line, "character": character}}
        return self.request(f"textDocument/{method}", {**place, **more})

    def in_all(self, method: str, uri: str) -> Json:
        whole = {"start": {"line": 0, "character": 0}, "end": {"line": 100_000, "character": 0}}
        return self.request(f"textDocument/{method}", {"textDocument": {"uri": uri}, "range": whole})

    def leave(self) -> None:
        """End the session as the protocol says."""
        self.request("shutdown")
        self.notify("exit")

    def _write(self, message: dict[str, Json]) -> None:
        self.write_raw(json.dumps({"jsonrpc": "2.0", **message}).encode())

    def _read(self) -> None:
        while True:
            try:
                message = self._message()
            except (OSError, ValueError) as error:
                message, self._broken = None, f"the stream is broken: {error}"
            with self._news:
                if message is None:
                    self._ended = True
                    self._news.notify_all()
                    return
                self.received.append(message)
                self._news.notify_all()
            if "method" in message and "id" in message and message["method"] != self.leaves_open:
                self.reply(message)

    def _message(self) -> dict[str, Json] | None:
        header = b""
        while not header.endswith(b"\r\n\r\n"):
            line = self._reader.readline()
            if not line and not header:
                return None
            header += line
            if not line.startswith((b"Content-Length: ", b"Content-Type: ", b"\r\n")):
                raise ValueError(f"stray bytes on the wire: {header!r}")
        match = HEADER.fullmatch(header)
        if match is None:
            raise ValueError(f"stray bytes on the wire: {header!r}")
        body = self._reader.read(int(match[1]))
        message = json.loads(body)
        if message.get("jsonrpc") != "2.0":
            raise ValueError(f"no JSON-RPC message: {body[:200]!r}")
        return cast(dict[str, Json], message)

    def reply(self, message: dict[str, Json]) -> None:
        """Answer a request of the server."""
        self._write({"id": message["id"], "result": self._result(message)})

    def _result(self, message: dict[str, Json]) -> Json:
        if message["method"] == "workspace/configuration":
            return [self.settings for _ in message["params"]["items"]]
        if message["method"] == "window/showMessageRequest":
            return {"title": self.choice} if self.choice is not None else None
        return {"success": True} if message["method"] == "window/showDocument" else None


def _started(command: Sequence[str]) -> "subprocess.Popen[bytes]":
    pipe = subprocess.PIPE
    return subprocess.Popen([sys.executable, *command], cwd=ROOT, stdin=pipe, stdout=pipe, stderr=pipe)


class Process:
    """A server process with its client; leaving the block ends it and checks that it ended in good order.

    The stand-in runs in a fork, and so does the server where it is `forked`, with all that it starts; else it
    is the process that an editor starts.
    """

    def __init__(self, *command: str, forked: bool = False) -> None:
        self.popen: Piped | subprocess.Popen[bytes] = (
            Piped(*command, cwd=str(ROOT)) if forked or command[:2] == STAND_IN else _started(command)
        )
        reader, writer = cast(BinaryIO, self.popen.stdout), cast(BinaryIO, self.popen.stdin)
        self.client = StrictClient(reader, writer)
        self.errors: list[str] = []
        self.left = False
        """The test ended the session itself."""
        self.expected: tuple[int, list[str]] = (0, [])
        """The exit code and the lines on stderr that are right when the block is left."""
        self._stderr = threading.Thread(target=self._read_errors, daemon=True)
        self._stderr.start()

    def end(self) -> int:
        """Leave, and the exit code."""
        if not self.left:
            self.client.leave()
        code = self.popen.wait(WAIT_S)
        self._stderr.join(WAIT_S)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: object, *_: object) -> None:
        try:
            if kind is None:
                code = self.end()
                if (code, self.errors) != self.expected:
                    said = "\n".join(self.errors)
                    raise AssertionError(f"the server ended with {code}, not {self.expected[0]}:\n{said}")
        finally:
            self.popen.kill()
            self.popen.wait()
            for pipe in (self.popen.stdin, self.popen.stdout, self.popen.stderr):
                if pipe is not None:
                    pipe.close()

    def _read_errors(self) -> None:
        assert self.popen.stderr is not None
        for line in self.popen.stderr:
            self.errors.append(line.decode(errors="replace").rstrip())


def connect(host: str, port: int) -> tuple[StrictClient, socket.socket]:
    """A client over TCP."""
    connection = socket.create_connection((host, port), timeout=WAIT_S)
    stream = connection.makefile("rwb", buffering=0)
    return StrictClient(cast(BinaryIO, connection.makefile("rb")), cast(BinaryIO, stream)), connection
