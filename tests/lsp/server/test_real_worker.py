"""The whole way: server, worker, engine, on the examples; and what user code may do to it."""

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.command import aotlens
from tests.language_servers import REAL, ROOT
from tests.lsp.processes import alive, descendants
from tests.lsp.strict_client import Json, Process, StrictClient

ALIASING = ROOT / "examples" / "aliasing.py"
LINES = ALIASING.read_text(encoding="utf-8").splitlines()
WITH_A_TENSOR_FROM_OUTSIDE = """\
import torch

WEIGHT = torch.arange(3.0)

# aotlens: example f32[3]
def scaled(x):
    return x * WEIGHT
"""
TRACE_S = 150.0
"""A cold worker on a busy machine loads torch for this long at most."""


@pytest.fixture(scope="module")
def client() -> Iterator[StrictClient]:
    """The real worker, loaded already; `test_faults.py` and the last test here start it cold."""
    with Process(*REAL, "--stdio", forked=True) as process:
        process.client.initialize(ROOT)
        yield process.client


def trace(client: StrictClient, uri: str, qualname: str | None = None) -> Json:
    arguments = [uri] if qualname is None else [uri, qualname]
    params = {"command": "aotlens.trace", "arguments": arguments}
    return client.request("workspace/executeCommand", params, TRACE_S)


def targets(client: StrictClient, uri: str, qualname: str | None = None) -> list[str]:
    """The targets of a trace that has to work; its failure says why it did not."""
    answer = trace(client, uri, qualname)
    assert "targets" in answer, answer
    return list(answer["targets"])


def script(folder: Path, text: str) -> Path:
    path = folder / "script.py"
    path.write_text(text, encoding="utf-8")
    return path


def line_of(text: str, after: int = 0) -> int:
    return next(number for number, line in enumerate(LINES) if text in line and number >= after)


def test_an_example_with_a_mutation_that_autograd_must_see(client: StrictClient) -> None:
    uri = client.open(ALIASING)
    assert targets(client, uri, "mutation_with_gradient") == ["mutation_with_gradient"]
    head, line = line_of("def mutation_with_gradient"), line_of("state.add_(x)")
    found = client.diagnostics(uri)
    assert (found["version"], len(found["diagnostics"])) == (1, 1)
    finding = found["diagnostics"][0]
    assert (finding["code"], finding["source"]) == ("AL101", "aotlens")
    assert finding["range"] == {
        "start": {"line": line, "character": 4},
        "end": {"line": line, "character": 17},
    }
    assert finding["message"].startswith("`state` is mutated in place, and autograd must record it")
    hints = [(one["position"]["line"], one["label"]) for one in client.in_all("inlayHint", uri)]
    assert hints == [(head, "mutated")]
    lenses = client.request("textDocument/codeLens", {"textDocument": {"uri": uri}})
    titles = [one["command"]["title"] for one in lenses if one["range"]["start"]["line"] == head]
    assert titles[0].startswith("training · ")
    assert titles[1:] == ["backward", "wrapper", "verify", "retrace"]
    text = client.at("hover", uri, line, 8)["contents"]["value"]
    assert text.startswith("`state.add_(x)` · `f32[2, 3]` · `aten.add`")
    assert "Mutates:\n- `state`: " in text
    ledger = client.at("hover", uri, head, LINES[head].index("state:") + 1)["contents"]["value"]
    assert ledger.startswith("**`state`** · argument 0 · `f32[2, 3]`\n\nCopied back: ")


def test_graph_documents_of_an_example(client: StrictClient) -> None:
    uri = client.open(ALIASING)
    targets(client, uri, "intermediate_and_its_view")
    wrapper = client.command("aotlens.show", uri, "intermediate_and_its_view", "wrapper")
    text = Path(wrapper["uri"].removeprefix("file://")).read_text()
    assert "import torch" in text
    line = line_of("doubled = x * 2", line_of("def intermediate_and_its_view"))
    nodes = client.at("implementation", uri, line, LINES[line].index("x * 2") + 1)
    assert nodes
    back = client.at("definition", nodes[0]["uri"], nodes[0]["range"]["start"]["line"], 4)
    assert [(one["uri"], one["range"]["start"]["line"]) for one in back] == [(uri, line)]


@pytest.mark.rotates
def test_an_export_is_the_module_that_the_command_line_writes(client: StrictClient, tmp_path: Path) -> None:
    """A tensor from outside is in the file, where what is shown is bound to that of the tracing process."""
    path = script(tmp_path, WITH_A_TENSOR_FROM_OUTSIDE)
    uri = client.open(path)
    assert targets(client, uri, "scaled") == ["scaled"]
    arguments = [uri, "scaled", (tmp_path / "alone.py").as_uri()]
    params = {"command": "aotlens.export", "arguments": arguments}
    assert client.request("workspace/executeCommand", params, TRACE_S)["uri"] == arguments[2]
    text = (tmp_path / "alone.py").read_text()
    assert "import aotlens" not in text
    made: dict[str, Any] = {"__name__": "alone"}
    exec(text, made)
    assert made["call"](torch.ones(3)).tolist() == [0.0, 1.0, 2.0]
    assert aotlens("export", f"{path}::scaled", "--backend", "eager").out == text


def test_a_bad_example_is_reported_once_and_blocks_no_other(client: StrictClient, tmp_path: Path) -> None:
    text = (
        "# aotlens: example f32[4\ndef f(x):\n    return x\n\n"
        "# aotlens: example f32[4]\ndef g(x):\n    return x * 2\n"
    )
    uri = client.open(script(tmp_path, text))
    assert targets(client, uri) == ["g"]
    client.in_all("inlayHint", uri)  # an answer that comes after what the trace published
    published = [one for one in client.all("textDocument/publishDiagnostics") if one["uri"] == uri]
    assert [one["code"] for one in published[-1]["diagnostics"]] == ["AL906"]


def test_the_shapes_of_variables(client: StrictClient) -> None:
    uri = client.open(ALIASING)
    targets(client, uri, "detached_output")
    line = line_of("y = x * 3", line_of("def detached_output"))
    hints = [one for one in client.in_all("inlayHint", uri) if one["position"]["line"] == line]
    assert [one["label"] for one in hints] == [": f32[4]"]


def test_the_shapes_of_several_names_in_one_assignment(client: StrictClient, tmp_path: Path) -> None:
    text = (
        "import torch\n\n\n@torch.compile\ndef f(x):\n    rows, cols = x.shape\n    q, k = x.unbind()\n"
        "    return q * k * cols\n\n\nf(torch.ones(2, 3))\n"
    )
    uri = client.open(script(tmp_path, text))
    assert targets(client, uri) == ["f"]
    hints = [(one["position"], one["label"]) for one in client.in_all("inlayHint", uri)]
    assert hints == [({"line": 6, "character": column}, ": f32[3]") for column in (5, 8)]


def test_user_code_that_prints_fails_and_exits(client: StrictClient, tmp_path: Path) -> None:
    head = "# aotlens: example f32[2]\ndef f(x):\n    return x * 2\n\n"
    noisy = script(tmp_path, head + "import os\nprint('hello')\nos.write(1, b'raw')\n")
    uri = client.open(noisy)
    assert targets(client, uri, "f") == ["f"]
    for text, kind in (
        ("raise ValueError(3)", "user"),
        ("import sys; sys.exit(3)", "exit"),
        ("f(", "syntax"),
    ):
        path = script(tmp_path, head + text + "\n")
        client.change(uri, 2, {"text": path.read_text()})
        mark = len(client.received)
        assert trace(client, uri, "f")["failure"] == kind
        found = client.findings(uri, mark)
        assert [one["range"]["start"]["line"] for one in found] == [4]
    script(tmp_path, head)
    client.change(uri, 3, {"text": head})
    assert targets(client, uri, "f") == ["f"]


def test_opening_editing_and_hovering_run_nothing(client: StrictClient, tmp_path: Path) -> None:
    mark = tmp_path / "ran"
    text = f"open({str(mark)!r}, 'w')\n# aotlens: example f32[2]\ndef f(x):\n    return x\n"
    uri = client.open(script(tmp_path, text))
    client.change(uri, 2, {"text": text + "\n"})
    assert client.at("hover", uri, 2, 5) is None
    assert client.request("textDocument/codeLens", {"textDocument": {"uri": uri}}) != []
    client.notify("textDocument/didSave", {"textDocument": {"uri": uri}})
    client.command("aotlens.printDebugInformation")
    assert not mark.exists()
    targets(client, uri, "f")
    assert mark.exists()


ENDLESS = (
    "# aotlens: example f32[2]\ndef f(x):\n    return x\n\nopen({0!r}, 'w').close()\nwhile True:\n    pass\n"
)


def start_endless(client: StrictClient, folder: Path) -> tuple[str, int]:
    """A trace that runs for ever, once its script runs."""
    mark = folder / "running"
    uri = client.open(script(folder, ENDLESS.format(str(mark))))
    number = client.send("workspace/executeCommand", {"command": "aotlens.trace", "arguments": [uri, "f"]})
    end = time.monotonic() + TRACE_S
    while not mark.exists() and time.monotonic() < end:
        time.sleep(0.05)
    assert mark.exists()
    return uri, number


def test_an_endless_script_is_cancelled_and_the_next_trace_works(
    client: StrictClient, tmp_path: Path
) -> None:
    uri, number = start_endless(client, tmp_path)
    assert client.at("hover", uri, 0, 0) is None
    assert client.command("aotlens.cancel", uri) == 1
    assert client.answer(number)["failure"] == "cancelled"
    aliasing = client.open(ALIASING)
    assert targets(client, aliasing, "view_of_input") == ["view_of_input"]


@pytest.mark.rotates
@pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="reads processes from /proc")
@pytest.mark.parametrize("how", ["closed pipe", "killed"])
def test_a_client_that_goes_during_a_trace_leaves_no_process(how: str, tmp_path: Path) -> None:
    with Process(*REAL) as process:
        process.client.initialize(ROOT)
        start_endless(process.client, tmp_path)
        started = descendants(process.popen.pid)
        assert len(started) >= 2  # the worker's server, and the child that runs the script
        process.left, process.expected = True, (1 if how == "closed pipe" else -signal.SIGKILL, [])
        if how == "killed":
            os.kill(process.popen.pid, signal.SIGKILL)
        assert process.popen.stdin is not None
        process.popen.stdin.close()
        end = time.monotonic() + TRACE_S
        while any(map(alive, started)) and time.monotonic() < end:
            time.sleep(0.1)
        assert [pid for pid in started if alive(pid)] == []
