"""`python both_ways.py BACKEND REPORT SCRIPT ARGS…`: a script in eager, then under `aotlens run --verify`.

One process for both; the outcome is JSON on stdout.
"""

import contextlib
import io
import json
import runpy
import sys
from collections.abc import Callable

import torch

from aotlens import cli


def _eager(script: str, arguments: list[str]) -> int:
    sys.argv = [script, *arguments]
    with torch.compiler.set_stance("force_eager"):
        try:
            runpy.run_path(script, run_name="__main__")
        except SystemExit as end:
            return int(end.code or 0)
    return 0


def _printed(run: Callable[[], int]) -> dict[str, object]:
    with contextlib.redirect_stdout(io.StringIO()) as stdout:
        exit_code = run()
    return {"exit_code": exit_code, "lines": stdout.getvalue().splitlines()}


def main() -> None:
    backend, report, script, *arguments = sys.argv[1:]
    command = ["run", "--backend", backend, "--verify", "--report", report, "--no-cache", script, *arguments]
    eager = _printed(lambda: _eager(script, arguments))
    torch.compiler.reset()
    ours = _printed(lambda: cli.main(command))
    json.dump({"eager": eager, "ours": ours}, sys.stdout)


if __name__ == "__main__":
    main()
