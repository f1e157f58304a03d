"""`aotlens mcp` as a process of its own, over stdin and stdout, on scripts that run."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

import pytest
from mcp import Client, StdioServerParameters

from aotlens._version import __version__
from aotlens.cli.commands import mcp as command
from aotlens.errors import UserError
from aotlens.mcp.tools import TOOLS
from tests.command import aotlens, environment
from tests.forked import Forking, bound_command
from tests.mcp.fake_client import FakeWorker, answer, error, session_in, text

T = TypeVar("T")

DAEMON = """\
import subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"])
print(child.pid)
"""

STEP = """\
import torch

# aotlens: example f32[8, 4] grad, f32[4, 4] grad
def step(x, w):
    print("traced")
    hidden = torch.tanh(x @ w)
    return (hidden * hidden.exp()).sum()
"""
LOOP = """\
import torch

@torch.compile(backend="eager")
def scaled(x, number):
    return x * number

for number in (2.0, 3.0):
    scaled(torch.ones(4), number)
"""


def _over_stdio(folder: Path, use: Callable[[Client], Awaitable[T]], mode: str = "auto") -> T:
    """What a client gets from a server in a fork; the legacy client starts a process, as agents do."""
    words = ("-m", "aotlens", "mcp", "--root", str(folder))
    command, *arguments = (sys.executable, *words) if mode == "legacy" else bound_command(*words)
    own = {**environment(), "AOTLENS_CACHE_DIR": ""}
    server = StdioServerParameters(command=command, args=arguments, env=own)

    async def connected() -> T:
        async with Client(server, mode=mode) as client:
            return await use(client)

    return asyncio.run(connected())


@pytest.fixture
def forks(monkeypatch: pytest.MonkeyPatch) -> None:
    """The commands that a session in this process starts are forks, which have torch loaded."""
    monkeypatch.setattr(subprocess, "Popen", Forking)


def test_a_session_over_stdin_and_stdout(tmp_path: Path) -> None:
    (tmp_path / "step.py").write_text(STEP)

    async def use(client: Client) -> dict[str, Any]:
        async def call(name: str, **arguments: Any) -> Any:
            result = await client.call_tool(name, arguments)
            assert not result.is_error, text(result)
            return result.structured_content

        run = {"target": "step.py", "run_user_code": True}
        inspected = await call("inspect", **run)
        verified = await call("verify", **run, backend="eager")
        (tmp_path / "step.py").write_text(STEP.replace("hidden.exp()", "hidden.exp().sin()"))
        again = await call("inspect", **run)
        changed = await call("diff", before=inspected["report"], after=again["report"])
        asked = await call("what-if", **run, changes=["recompute:hidden"])
        return {"inspect": inspected, "verify": verified, "diff": changed, "what-if": asked}

    answers = _over_stdio(tmp_path, use)
    assert [row["saved_bytes"] for row in answers["inspect"]["targets"]] == [128]
    assert answers["inspect"]["output"] == "traced\n"
    assert answers["verify"]["all_equal"] is True
    (change,) = answers["diff"]["targets"]
    assert (change["before"]["forward_nodes"], change["after"]["forward_nodes"]) == (5, 6)
    assert answers["what-if"]["targets"][0]["changes"][0]["change"] == "recompute:hidden"


@pytest.mark.rotates
@pytest.mark.parametrize("mode", ["auto", "legacy"])
def test_the_server_introduces_itself_to_new_and_old_clients(tmp_path: Path, mode: str) -> None:
    async def use(client: Client) -> tuple[str, str, str | None]:
        assert client.server_info is not None
        listed = await client.list_tools()
        assert [tool.name for tool in listed.tools] == [tool.name for tool in TOOLS]
        called = await client.call_tool("inspect", {})
        assert called.is_error
        return client.server_info.name, client.server_info.version, client.instructions

    name, version, instructions = _over_stdio(tmp_path, use, mode)
    assert (name, version) == ("aotlens", __version__)
    assert instructions is not None
    assert "run_user_code" in instructions


@pytest.mark.rotates
@pytest.mark.usefixtures("forks")
def test_why_runs_the_script_in_a_process_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP)
    session = session_in(tmp_path, FakeWorker())
    explained = answer(session, "why", script="loop.py", run_user_code=True)
    assert explained["forecasts"] == []
    (function,) = explained["functions"]
    assert (function["qualname"], len(function["compilations"])) == ("scaled", 2)
    assert "recompilation" in explained["summary"]


STEPS = """\
import torch

net = torch.nn.Linear(64, 64)
optimizer = torch.optim.SGD(net.parameters(), lr=0.1)
for _ in range(4):
    net(torch.randn(8, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
"""


@pytest.mark.rotates
@pytest.mark.usefixtures("forks")
def test_fit_measures_the_step_of_a_script_and_reads_it_again(tmp_path: Path) -> None:
    (tmp_path / "steps.py").write_text(STEPS)
    session = session_in(tmp_path, FakeWorker())
    fit = answer(session, "fit", script="steps.py", run_user_code=True, gpu="h100", rows=2)
    parameters = next(entry for entry in fit["by_kind"] if entry["kind"] == "parameter")
    assert parameters["bytes"] == 4 * (64 * 64 + 64)
    assert fit["step_peak_bytes"] >= sum(entry["bytes"] for entry in fit["by_kind"])
    assert fit["fits"]["ok"] is True
    assert "at the peak of step" in fit["summary"]
    assert any(line.startswith("by_line: 2 of") for line in fit["left_out"])
    again = answer(session, "fit", report=fit["report"], rows=100)
    assert (again["step_peak_bytes"], again["left_out"]) == (fit["step_peak_bytes"], [])
    (tmp_path / "loop.py").write_text(LOOP)
    other = answer(session, "why", script="loop.py", run_user_code=True)["report"]
    assert error(session, "fit", report=other) == (
        f"{other} does not hold the memory of a step; call `fit` with `script`"
    )


@pytest.mark.rotates
@pytest.mark.usefixtures("forks")
def test_why_forecasts_other_arguments(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text(LOOP.replace("(2.0, 3.0)", "(2.0,)"))
    session = session_in(tmp_path, FakeWorker())
    asked = {"script": "loop.py", "run_user_code": True, "vary": ["number=4.0"]}
    (forecast,) = answer(session, "why", **asked)["forecasts"]
    assert [call["value"] for axis in forecast["axes"] for call in axis["calls"]] == ["4.0"]
    assert error(session, "why", **asked, forecast=True) == (
        "forecast and vary are runs of their own; ask for one at a time"
    )


def test_why_ends_a_script_at_the_limit(tmp_path: Path) -> None:
    (tmp_path / "loop.py").write_text("import time\ntime.sleep(600)\n")
    session = session_in(tmp_path, FakeWorker())
    assert error(session, "why", script="loop.py", run_user_code=True, time_limit_s=0.5) == (
        "the script ran longer than 0.5 s and was stopped; a larger `time_limit_s` lets it run on"
    )


@pytest.mark.rotates
@pytest.mark.skipif(not Path("/proc").exists(), reason="/proc says whether a process has ended")
def test_why_ends_what_the_script_leaves_running(tmp_path: Path) -> None:
    (tmp_path / "daemon.py").write_text(DAEMON)
    session = session_in(tmp_path, FakeWorker())
    explained = answer(session, "why", script="daemon.py", run_user_code=True)
    pid = int(explained["output"].split()[0])
    while _runs(pid):
        time.sleep(0.01)


def _runs(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return False
    return state != "Z"


@pytest.mark.usefixtures("forks")
def test_why_says_how_a_script_ended_that_made_no_report(tmp_path: Path) -> None:
    (tmp_path / "gone.py").write_text("import os\nos._exit(7)\n")
    session = session_in(tmp_path, FakeWorker())
    assert error(session, "why", script="gone.py", run_user_code=True) == (
        "gone.py exited with code 7 before a report could be made"
    )


def test_a_root_that_is_no_folder_is_the_users_mistake() -> None:
    ended = aotlens("mcp", "--root", "nowhere")
    assert (ended.code, ended.err) == (2, "aotlens: error: --root nowhere: no such folder\n")


def test_without_the_package_the_command_says_how_to_install_it(monkeypatch: pytest.MonkeyPatch) -> None:
    def without_mcp(name: str) -> Any:
        return None if name == "mcp" else find_spec(name)

    monkeypatch.setattr(command, "find_spec", without_mcp)
    arguments = type("Arguments", (), {"root": Path(os.curdir)})()
    with pytest.raises(UserError, match=r"pip install 'aotlens\[mcp\]'"):
        command.run(arguments)
