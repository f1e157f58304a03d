"""Sessions that go wrong: each is survived, with one message to the user and nothing stray on the wire."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

from lsp_server.settings import SETTINGS
from tests.language_servers import REAL, ROOT, STAND_IN
from tests.lsp.strict_client import (
    FULL_CAPABILITIES,
    WAIT_S,
    Json,
    Process,
    RefusedError,
    StrictClient,
    connect,
)
from tests.report.sample import MODEL


def messages(client: StrictClient) -> list[tuple[int, str]]:
    return [(one["type"], one["message"]) for one in client.all("window/showMessage")]


def slow_trace(client: StrictClient, uri: str) -> int:
    """Start a trace that does not end by itself, and wait until its progress is shown."""
    mark = len(client.received)  # on a busy machine a trace before may have shown its progress too
    number = client.send("workspace/executeCommand", {"command": "aotlens.trace", "arguments": [uri, "slow"]})
    client.wait(lambda one: one.get("method") == "$/progress", "progress", after=mark)
    return number


@pytest.mark.rotates
def test_what_vs_code_passes_is_accepted() -> None:
    with Process(*REAL, "--stdio", "--clientProcessId=1") as process:
        process.client.initialize(ROOT, {"trusted": False})


def test_exit_without_shutdown_and_a_closed_pipe_end_it_with_code_1() -> None:
    for leave in ("exit", "close"):
        with Process(*STAND_IN) as process:
            process.client.initialize(ROOT)
            process.left, process.expected = True, (1, [])
            if leave == "exit":
                process.client.notify("exit")
            assert process.popen.stdin is not None
            process.popen.stdin.close()


def test_a_print_in_the_server_never_reaches_the_client() -> None:
    with Process(*STAND_IN) as process:
        process.expected = (0, ["a line that is no message", "another"])
        process.client.initialize(ROOT)
        uri = process.client.open(MODEL)
        assert "targets" in process.client.command("aotlens.trace", uri, "print")


def test_a_hover_is_answered_during_a_trace(client: StrictClient) -> None:
    uri = client.open(MODEL)
    client.command("aotlens.trace", uri)
    slow = slow_trace(client, uri)
    assert client.at("hover", uri, 21, 35)["contents"]["value"].startswith(
        "`self.up(x)` · `f32[32, 64]` · saves 8.0 KiB"
    )
    assert client.command("aotlens.cancel", uri) == 1
    assert client.answer(slow) == {"failure": "cancelled", "message": "cancelled"}
    assert messages(client) == []


def test_cancelling_the_request_stops_the_trace(client: StrictClient) -> None:
    slow = slow_trace(client, client.open(MODEL))
    client.notify("$/cancelRequest", {"id": slow})
    with pytest.raises(RefusedError, match="-32800"):
        client.answer(slow)
    assert client.command("aotlens.printDebugInformation")["running"] == []


def test_the_cancel_button_of_the_progress_bar_stops_the_trace(client: StrictClient) -> None:
    slow = slow_trace(client, client.open(MODEL))
    token = client.notification("$/progress")["token"]
    client.notify("window/workDoneProgress/cancel", {"token": token})
    assert client.answer(slow)["failure"] == "cancelled"
    kinds = [one["value"]["kind"] for one in client.all("$/progress")]
    assert (kinds[0], kinds[-1]) == ("begin", "end")
    assert client.all("$/progress")[-1]["value"]["message"] == "cancelled"


def test_an_answer_about_a_bar_may_come_after_the_trace(client: StrictClient) -> None:
    create = "window/workDoneProgress/create"
    client.leaves_open = create
    uri = client.open(MODEL)
    slow = client.send("workspace/executeCommand", {"command": "aotlens.trace", "arguments": [uri, "slow"]})
    asked = client.wait(lambda one: one.get("method") == create, "a request for a bar")
    assert client.command("aotlens.cancel", uri) == 1
    assert client.answer(slow)["failure"] == "cancelled"
    client.reply(asked)
    assert client.command("aotlens.printDebugInformation")["running"] == []  # behind that answer
    assert messages(client) == []
    assert client.all("$/progress") == []


def test_a_newer_trace_of_the_same_target_cancels_the_older(client: StrictClient) -> None:
    uri = client.open(MODEL)
    first = slow_trace(client, uri)
    second = client.send("workspace/executeCommand", {"command": "aotlens.trace", "arguments": [uri, "slow"]})
    assert client.answer(first)["failure"] == "cancelled"
    client.command("aotlens.cancel")
    assert client.answer(second)["failure"] == "cancelled"


def test_two_traces_at_once(client: StrictClient, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("# aotlens: example f32[2]\ndef f(x):\n    return x\n")
    slow = slow_trace(client, client.open(MODEL))
    assert "targets" in client.command("aotlens.trace", client.open(other))
    client.command("aotlens.cancel")
    assert client.answer(slow)["failure"] == "cancelled"


@pytest.mark.parametrize(
    ("kind", "code"), [("user", "AL902"), ("crash", "AL909"), ("timeout", "AL907"), ("unsupported", "AL402")]
)
def test_a_failure_is_one_message_and_one_finding(client: StrictClient, kind: str, code: str) -> None:
    uri = client.open(MODEL)
    assert client.command("aotlens.trace", uri, kind)["failure"] == kind
    text = f"{MODEL}: {kind} failed"
    assert messages(client) == [(1, text)]
    found = client.diagnostics(uri)["diagnostics"]
    place = {"start": {"line": 19, "character": 8}, "end": {"line": 19, "character": 23}}
    assert [(one["code"], one["message"], one["range"]) for one in found] == [(code, text, place)]
    assert client.notification("window/logMessage")["message"].endswith("said by the script\n")
    assert "targets" in client.command("aotlens.trace", uri)


def test_a_fault_of_ours_is_a_message_and_no_finding(client: StrictClient) -> None:
    uri = client.open(MODEL)
    assert client.command("aotlens.trace", uri, "internal")["failure"] == "internal"
    assert messages(client) == [(1, f"{MODEL}: internal failed")]
    assert client.all("textDocument/publishDiagnostics") == []


UNREADABLE = "aotlens: the editor sent a message that cannot be read; `aotlens lsp --log-file FILE` logs it"
COMMAND = "workspace/executeCommand"


@pytest.mark.parametrize(
    ("method", "params", "error"),
    [
        ("textDocument/hover", {"textDocument": 7}, "-32602: .*"),
        ("textDocument/noSuchThing", {}, "-32601: .*"),
        (COMMAND, {"command": "aotlens.fly"}, r"-32602: .*no command 'aotlens\.fly'"),
        (
            COMMAND,
            {"command": "aotlens.trace"},
            r"-32602: .*aotlens\.trace takes \[uri, qualname\], got \[\]",
        ),
        (COMMAND, {"command": "aotlens.trace", "arguments": [7]}, "-32602: .*takes strings, got 7"),
    ],
)
def test_a_bad_request_is_refused_by_name(
    shared: StrictClient, method: str, params: Json, error: str
) -> None:
    with pytest.raises(RefusedError, match=error):
        shared.request(method, params)
    assert messages(shared) == []


def test_messages_that_cannot_be_read_are_told_once(client: StrictClient) -> None:
    client.write_raw(b"{this is no JSON")
    client.write_raw(b'{"jsonrpc": "2.0", "method": "textDocument/didChange", "params": 3}')
    wrong = (b"[]", b"7", b"null", b'"text"', b"{}", b'{"jsonrpc": "1.0", "id": 1, "method": "x"}', b"\xff")
    for body in wrong:
        client.write_raw(body)
    client.write_raw(b'{"jsonrpc": "2.0", "id": 99, "result": 1}')  # an answer to nothing
    client.notify("textDocument/didSave", {"textDocument": {"uri": "file:///nowhere.py"}})
    assert client.at("hover", client.open(MODEL), 0, 0) is None
    assert messages(client) == [(1, UNREADABLE)]


@pytest.mark.parametrize(
    "stray",
    [
        b"no header at all\r\n",
        b"Content-Length: many\r\n\r\n{}",
        b"Content-Length: 5\r\n\r\n{} and more than five",
        b"\x00\xff" * 100,
        b'{"jsonrpc": "2.0", "method": "initialized"}',
    ],
)
def test_bytes_that_are_no_message_cost_no_other_message(stray: bytes) -> None:
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT)
        uri = process.client.open(MODEL)
        process.client.write_bytes(stray)
        assert "targets" in process.client.command("aotlens.trace", uri)
        assert messages(process.client) == [(1, UNREADABLE)]


def test_headers_are_read_as_the_protocol_says(client: StrictClient) -> None:
    body = b'{"jsonrpc": "2.0", "id": 50, "method": "workspace/executeCommand", "params": %s}'
    body %= b'{"command": "aotlens.cancel"}'
    kind = b"Content-Type: application/vscode-jsonrpc; charset=utf-8\r\n"
    client.write_bytes(b"%scontent-length:%d\r\n\r\n%s" % (kind, len(body), body))
    assert client.answer(50) == 0
    assert messages(client) == []


def test_a_file_outside_the_workspace_and_one_that_is_gone(client: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "outside.py"
    script.write_text("# aotlens: example f32[2]\ndef f(x):\n    return x\n")
    uri = client.open(script)
    assert len(client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})) == 1
    script.unlink()
    assert "targets" in client.command("aotlens.trace", uri)  # the stand-in reads no file; ours is not upset
    assert client.in_all("inlayHint", uri) == []


def test_bad_settings_are_named_once_and_replaced(client: StrictClient) -> None:
    wrong: Json = {"aotlens": {"trace": "always", "inlayHints": {"shapes": 3}, "colour": "red"}}
    for _ in range(2):
        client.notify("workspace/didChangeConfiguration", {"settings": wrong})
    client.command("aotlens.printDebugInformation")
    assert messages(client) == [
        (2, "aotlens.trace: expected \"manual\" or \"onSave\", got 'always'; using 'manual'"),
        (2, "aotlens.inlayHints.shapes: expected true or false, got 3; using True"),
        (2, f"aotlens.colour: no such setting; known are {', '.join(SETTINGS)}"),
    ]


def test_settings_are_asked_for_where_the_client_only_says_that_they_changed(client: StrictClient) -> None:
    client.settings = {"codeLens": False}
    client.notify("workspace/didChangeConfiguration", {"settings": None})
    client.wait(lambda one: one.get("method") == "workspace/codeLens/refresh", "a refresh")
    uri = client.open(MODEL)
    assert client.request("textDocument/codeLens", {"textDocument": {"uri": uri}}) is None


@pytest.mark.parametrize(
    ("options", "traces"),
    [
        ({"trace": "onSave", "trusted": True}, True),
        ({"trace": "onSave"}, False),
        ({"trace": "onSave", "trusted": False}, False),
        ({"trusted": True}, False),
    ],
)
def test_only_a_save_in_a_trusted_workspace_traces_unasked(options: Json, traces: bool) -> None:
    with Process(*STAND_IN) as process:
        client = process.client
        client.initialize(ROOT, options)
        uri = client.open(MODEL)
        client.change(uri, 2, {"text": MODEL.read_text(encoding="utf-8")})
        client.at("hover", uri, 21, 35)
        assert client.all("textDocument/publishDiagnostics") == []
        client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
        if traces:
            assert len(client.diagnostics(uri)["diagnostics"]) == 2
        else:
            information = client.command("aotlens.printDebugInformation")
            assert (information["running"], information["traces"]) == ([], [])


def test_a_workspace_cannot_grant_itself_trust() -> None:
    with Process(*STAND_IN) as process:
        client = process.client
        client.initialize(ROOT, {"trusted": False})
        uri = client.open(MODEL)
        settings = {"aotlens": {"trusted": True}}
        client.notify("workspace/didChangeConfiguration", {"settings": settings})
        refused = {
            "failure": "not-run",
            "message": "tracing runs the file's code, so trust this workspace first",
        }
        assert client.command("aotlens.trace", uri) == refused
        assert messages(client) == [(2, refused["message"])]
        client.notify("aotlens/trusted", {})
        assert "targets" in client.command("aotlens.trace", uri)


def test_unsaved_changes_are_traced_as_they_were_saved(client: StrictClient) -> None:
    uri = client.open(MODEL, "# one more line\n" + MODEL.read_text(encoding="utf-8"))
    client.command("aotlens.trace", uri)
    note = "sample_model.py has unsaved changes: it is traced as it was saved"
    assert messages(client) == [(3, note)]
    lines = [one["range"]["start"]["line"] for one in client.diagnostics(uri)["diagnostics"]]
    assert lines == [21, 22]


@pytest.mark.rotates
def test_a_long_file_and_a_big_report(client: StrictClient, tmp_path: Path) -> None:
    script = tmp_path / "long.py"
    script.write_text("# aotlens: example f32[2]\ndef f(x):\n    return x\n" + "y = 1\n" * 20_000)
    uri = client.open(script)
    assert len(client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})) == 1
    for version in range(2, 30):
        place = {"line": version * 500, "character": 0}
        client.change(uri, version, {"range": {"start": place, "end": place}, "text": "z = '漢'\n"})
    model = client.open(MODEL)
    client.command("aotlens.trace", model, "big")
    assert client.at("hover", model, 21, 35)["contents"]["value"].count("\n") < 30
    assert client.at("hover", uri, 19_000, 1) is None


def test_findings_in_closed_files_are_shown_inside_the_workspace_only(tmp_path: Path) -> None:
    for root, count in ((ROOT, 1), (tmp_path, 0)):
        with Process(*STAND_IN) as process:
            process.client.initialize(root)
            other = tmp_path / "other.py"
            other.write_text("import torch\n")
            process.client.command("aotlens.trace", process.client.open(other))
            found = [one["uri"] for one in process.client.all("textDocument/publishDiagnostics")]
            assert found == [MODEL.as_uri()] * count


@pytest.mark.rotates
def test_tcp_serves_loopback_and_says_so() -> None:
    command = [sys.executable, *REAL, "--tcp", "0"]
    with subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        said = re.fullmatch(r"aotlens lsp: listening on 127\.0\.0\.1:(\d+)\n", process.stderr.readline())
        assert said is not None
        client, connection = connect("127.0.0.1", int(said[1]))
        with connection:
            client.initialize(ROOT, {"trusted": False}, FULL_CAPABILITIES)
            uri = client.open(MODEL)
            assert len(client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})) == 1
            client.leave()
            assert process.wait(WAIT_S) == 0


@pytest.mark.rotates
def test_a_log_file_is_written_only_when_asked_for(tmp_path: Path) -> None:
    log = tmp_path / "log.txt"
    with Process(*REAL, "--log-file", str(log)) as process:
        process.client.initialize(ROOT, {"trusted": False})
        with pytest.raises(RefusedError):
            process.client.request("textDocument/hover", {})
    assert "textDocument/hover" in log.read_text() or "Unable to deserialize" in log.read_text()
