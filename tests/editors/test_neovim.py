"""A real editor: headless Neovim with our plugin, attached to the server.

Debian 12's Neovim is too old for inlay hints: the session prints them where the editor has them, and the
tests of tests/lsp ask for them with clients of their own.
"""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.language_servers import REAL, ROOT, STAND_IN
from tests.report.sample import MODEL

pytestmark = pytest.mark.skipif(shutil.which("nvim") is None, reason="Neovim is not installed")

SESSION = Path(__file__).with_name("neovim_session.lua")


def neovim(file: Path, target: str, line: int, server: tuple[str, ...], **more: str) -> list[str]:
    """What the session prints; it ends the editor itself."""
    environment = {
        **os.environ,
        "AOTLENS_CMD": "|".join([sys.executable, *server]),
        "AOTLENS_TARGET": target,
        "AOTLENS_LINE": str(line),
        "PYTHONPATH": str(ROOT),
        **more,
    }
    command = ["nvim", "--headless", "--clean", "--cmd", f"set rtp+={ROOT / 'editors' / 'neovim'}", str(file)]
    done = subprocess.run(
        [*command, "-c", f"luafile {SESSION}", "-c", "cquit"],
        env=environment,
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout.splitlines()


def told(shown: list[str], label: str) -> list[str]:
    return [one.removeprefix(f"{label} ") for one in shown if one.startswith(f"{label} ")]


@pytest.mark.rotates
def test_an_example_through_the_real_worker() -> None:
    example = ROOT / "examples" / "aliasing.py"
    lines = example.read_text(encoding="utf-8").splitlines()
    line = lines.index("    state.add_(x)") + 1
    shown = neovim(example, "mutation_with_gradient", line, REAL, AOTLENS_TUI="1")
    (finding,) = told(shown, "DIAGNOSTIC")
    assert finding.startswith(f"{line}:4 aotlens `state` is mutated in place, and autograd must record it")
    assert told(shown, "HOVER")[0].startswith("`state.add_(x)` · `f32[2, 3]`")
    assert told(shown, "GRAPH") == ["def backward_graph(tangent_state, tangent_out):"]
    assert "TUI" in shown


@pytest.mark.rotates
def test_a_trace_shows_in_the_editor() -> None:
    line = next(n for n, text in enumerate(MODEL.read_text().splitlines(), 1) if "cache.mul_" in text)
    shown = neovim(MODEL, "", line, STAND_IN, AOTLENS_FIX="Return the new value instead")
    assert told(shown, "DIAGNOSTIC") == [
        f"{place} aotlens {message}"
        for place, message in (
            ("21:8", "`cache` is changed in place and carries a gradient: 2.0 KiB are copied on every call"),
            ("22:33", "`self.up(x)` saves 8.0 KiB for the backward, all of the 8.0 KiB saved here"),
        )
    ]
    assert told(shown, "HOVER")[0].startswith("`cache.mul_(0.9)` · `f32[32, 16]`")
    assert told(shown, "LENS")[:6] == [
        "8 training · 9 fw / 12 bw nodes · saves 8.0 KiB · 3 wrapper steps",
        "8 backward",
        "8 wrapper",
        "8 verify",
        "8 retrace",
        "8 terminal app",
    ]
    assert told(shown, "COMPLETES") == ["Block score"]
    assert told(shown, "GPUS") == ["H100 SXM, H100 PCIe, H100 NVL"]
    assert told(shown, "PARTS") == ["captured functional inference wrapper"]
    # A graph is a read-only buffer, and a node of it leads back to the line.
    assert told(shown, "GRAPH")[0].startswith("def backward(")
    assert told(shown, "MODIFIABLE") == ["false"]
    assert told(shown, "DEFINITION") == ["23"]
    assert told(shown, "FIXED") == ["        cache = cache * 0.9"]
