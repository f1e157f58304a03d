"""Let pre-commit run the hook in a temporary repository, and print what the user sees.

The hook comes from a repository with this checkout's .pre-commit-hooks.yaml, as from a clone of aotlens;
`aotlens` is that of the running Python.  First a function that exceeds its budget is staged, then one within
it.
"""

import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
MODEL = """\
import torch
from torch import Tensor


# aotlens: example f32[256, 64] grad, f32[64, 64] grad
def step(x: Tensor, w: Tensor) -> Tensor:
    return torch.tanh(x @ w).sum()
"""
SETTINGS = '[tool.aotlens]\nmax-saved-bytes = "{} KiB"\n'
CONFIG = "repos:\n  - repo: {}\n    rev: v0.1.0\n    hooks:\n      - id: aotlens-check\n"


def git(repository: Path, *words: str) -> None:
    own = ("-c", "user.name=try", "-c", "user.email=try@localhost", "-c", "commit.gpgsign=false")
    subprocess.run(["git", *own, *words], cwd=repository, check=True, capture_output=True)


def hook(folder: Path) -> Path:
    """Return a repository that offers the hook, with a tag."""
    folder.mkdir()
    (folder / ".pre-commit-hooks.yaml").write_bytes((ROOT / ".pre-commit-hooks.yaml").read_bytes())
    git(folder, "init", "-q")
    git(folder, "add", "-A")
    git(folder, "commit", "-qm", "hook")
    git(folder, "tag", "v0.1.0")
    return folder


def commands(folder: Path) -> Path:
    """Return a folder with the command, like that of an active environment."""
    folder.mkdir()
    command = folder / "aotlens"
    command.write_text(f'#!/bin/sh\nexec {shlex.quote(sys.executable)} -m aotlens "$@"\n')
    command.chmod(0o755)
    return folder


def run(repository: Path, environment: dict[str, str]) -> tuple[int, str]:
    """Stage everything and run pre-commit; return its exit code and output."""
    git(repository, "add", "-A")
    words = [sys.executable, "-m", "pre_commit", "run", "--color", "never"]
    done = subprocess.run(words, cwd=repository, env=environment, capture_output=True, text=True, check=False)
    lines = [line for line in done.stdout.strip().splitlines() if not line.startswith("[INFO]")]
    return done.returncode, "\n".join(lines) + done.stderr


def main() -> int:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        environment = {
            **os.environ,
            "PATH": f"{commands(folder / 'bin')}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(ROOT),
            "PRE_COMMIT_HOME": str(folder / "home"),
            "AOTLENS_CACHE_DIR": "",
            "COLUMNS": "100",
        }
        repository = folder / "repository"
        repository.mkdir()
        git(repository, "init", "-q")
        (repository / ".pre-commit-config.yaml").write_text(CONFIG.format(hook(folder / "hook")))
        (repository / "model.py").write_text(MODEL)
        codes = []
        for budget in (32, 64):
            (repository / "pyproject.toml").write_text(SETTINGS.format(budget))
            code, printed = run(repository, environment)
            codes.append(code)
            print(f"$ pre-commit run    # max-saved-bytes = {budget} KiB\n{printed}\n")
    return int(codes != [1, 0])


if __name__ == "__main__":
    sys.exit(main())
