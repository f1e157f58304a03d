"""Chromium without a window, driven by a script at the end of an HTML page."""

import html
import json
import re
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest

from aotlens.render.html.build import html_page
from tests.report.sample import sample_report

CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
OPTIONS = ("--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--window-size=1400,900")
HELPERS = """
const rows = (name) => [...document.querySelectorAll(`.table .row${name}`)].map((row) => row.textContent);
const lit = () => [...document.querySelectorAll("#source .on")].map((span) => span.textContent).join("");
const click = (element) => element.click();
const tabs = () => [...document.querySelectorAll("#tabs button")];
const tab = (title) => click(tabs().find((one) => one.textContent === title));
const all = (where) => [...document.querySelectorAll(where)];
const having = (where, text) => all(where).find((one) => one.textContent.includes(text));
const wait = () => new Promise((done) => setTimeout(done, 60));
const until = async (isTrue) => {  // the browser draws when it likes, also long after a wait
  for (let turn = 0; turn < 70 && !isTrue(); turn++) await wait();
};
window.onerror = (message) => (document.body.dataset.error = message);
const answer = (value) => (document.body.dataset.answer = JSON.stringify(value));
"""

needs_chromium = pytest.mark.skipif(
    CHROMIUM is None, reason="no chromium: the page needs a browser to run in"
)


def in_browser(page: str, script: str, folder: Path, address: str = "") -> Any:
    """Return what the script passes to `answer`, after the page has loaded at that address."""
    assert CHROMIUM is not None
    run = f"(async () => {{ {script} }})().catch((error) => window.onerror(error.stack));"
    driven = f"<script>{HELPERS}{run}</script>"
    file = folder / "page.html"
    file.write_text(page.replace("</body>", f"{driven}</body>"), encoding="utf-8")
    profile = f"--user-data-dir={folder / 'profile'}"
    done = subprocess.run(
        [
            CHROMIUM,
            *OPTIONS,
            profile,
            "--virtual-time-budget=5000",
            "--dump-dom",
            f"{file.as_uri()}{address}",
        ],
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    pairs = re.findall(r'data-(answer|error)="([^"]*)"', done.stdout)
    found = {name: html.unescape(text) for name, text in pairs}
    assert "error" not in found, found["error"]
    assert "answer" in found, done.stderr[-2000:]
    return json.loads(found["answer"])


def sample_page(nodes: int = 0) -> str:
    return html_page(sample_report(nodes), "sample_model.py")
