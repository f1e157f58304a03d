"""The app in a browser: a real server, its page, its socket, and what stays behind."""

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import aiohttp
import pytest

from aotlens.cli.app import run_command
from aotlens.model import dumps
from tests.command import ROOT
from tests.report.sample import sample_report
from tests.tui.processes import marked, needs_proc, until


@dataclass
class Served:
    process: "subprocess.Popen[str]"
    mark: str
    address: str = ""

    @property
    def base(self) -> str:
        return self.address.partition("/?")[0]


@pytest.fixture
def served(tmp_path: Path) -> Iterator[Served]:
    report = tmp_path / "report.json"
    report.write_text(dumps(sample_report()), encoding="utf-8")
    variable, mark = "AOTLENS_TEST_MARK", str(tmp_path)
    process = subprocess.Popen(
        [sys.executable, "-m", "aotlens", "tui", "--report", report.name, "--serve", "--port", "0"],
        cwd=tmp_path,  # the app's title has room for a short path only
        env={**os.environ, variable: mark, "PYTHONPATH": str(ROOT)},
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    running = Served(process, f"{variable}={mark}", process.stderr.readline().removeprefix("open ").strip())
    yield running
    process.kill()
    process.communicate()
    until(lambda: not marked(running.mark))


async def frame(page: aiohttp.ClientSession, served: Served, shown: str) -> str:
    """What the app sends until the text is among it."""
    got = b""
    address = f"{served.base.replace('http', 'ws', 1)}/ws?width=120&height=40"
    async with page.ws_connect(address, origin=served.base) as socket:
        async for message in socket:
            if message.type == aiohttp.WSMsgType.BINARY:
                got += message.data
            if shown.encode() in got:
                break
        assert len(marked(served.mark)) == 2, "the server, and the app of this visit"
    return got.decode("utf-8", "replace")


@pytest.mark.rotates
@needs_proc
def test_the_page_and_the_first_frame_reach_a_browser_and_nothing_stays_behind(served: Served) -> None:
    async def visit() -> None:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as page:
            answer = await page.get(served.address)
            text = await answer.text()
            assert (answer.status, str(answer.url)) == (200, f"{served.base}/")
            assert f'"{served.base.replace("http", "ws", 1)}/ws"' in text
            assert "font-src" in answer.headers["Content-Security-Policy"]
            script = await page.get(f"{served.base}/static/js/textual.js")
            assert script.status == 200
            drawn = await frame(page, served, "Largest saved values")
            assert "report.json" in drawn

    assert served.address.startswith("http://127.0.0.1:")
    asyncio.run(visit())
    until(lambda: len(marked(served.mark)) == 1)
    served.process.send_signal(signal.SIGINT)
    assert served.process.wait(120) == 0
    assert marked(served.mark) == []


@pytest.mark.rotates
@needs_proc
def test_an_app_ends_when_its_server_is_killed(served: Served) -> None:
    async def visit() -> None:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as page:
            await page.get(served.address)
            async with page.ws_connect(f"{served.base}/ws", origin=served.base) as socket:
                await socket.receive()
                served.process.kill()

    asyncio.run(visit())
    until(lambda: not marked(served.mark))


@pytest.mark.rotates
def test_without_the_key_and_for_other_pages_it_is_closed(served: Served) -> None:
    async def statuses() -> list[int]:
        async with aiohttp.ClientSession(cookie_jar=aiohttp.CookieJar(unsafe=True)) as page:
            bare = await page.get(f"{served.base}/")
            wrong = await page.get(f"{served.base}/?key=guessed")
            await page.get(served.address)
            found = [bare.status, wrong.status]
            try:
                await page.ws_connect(f"{served.base}/ws", origin="http://127.0.0.1:1")
            except aiohttp.WSServerHandshakeError as error:
                found.append(error.status)
            return found

    assert asyncio.run(statuses()) == [403, 403, 403]


@pytest.mark.rotates
def test_a_port_that_is_taken_is_one_error(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    port = served.base.rpartition(":")[2]
    assert run_command(["tui", "x.py", "--serve", "--port", port]) == 2
    assert capsys.readouterr().err == (
        f"aotlens: error: cannot serve on 127.0.0.1 port {port}: Address already in use; choose another"
        " with --port (0: any free port)\n"
    )
