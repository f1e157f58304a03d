"""Show what `aotlens why --fix` does to a program: the screen, the edits, the screen of the edited program.

    python scripts/why/applied_fixes.py corpus/programs/recipes/soft_codebook.py

The program is copied to a temporary folder, under the same path.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]


def main(program: str) -> int:
    """Print both screens."""
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder, program)
        copy.parent.mkdir(parents=True)
        shutil.copy(ROOT / program, copy)
        for option in ("--fix", ""):
            print(f"$ aotlens why {option}{' ' if option else ''}{program}", flush=True)
            print(why(folder, option, program), flush=True)
    return 0


def why(folder: str, option: str, program: str) -> str:
    """Return what the command prints, with empty caches of compiled code so that times can be compared."""
    command = [sys.executable, "-m", "aotlens", "why", *filter(None, [option]), program]
    with tempfile.TemporaryDirectory() as cache:
        environment = os.environ | {"TORCHINDUCTOR_CACHE_DIR": cache}
        done = subprocess.run(
            command, cwd=folder, env=environment, capture_output=True, text=True, check=False
        )
    if done.returncode:
        sys.exit(done.stderr)
    return done.stdout.rstrip()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
