"""`aotlens mcp`: the commands as tools for agents, over the Model Context Protocol on stdin and stdout."""

import argparse
from importlib.util import find_spec
from pathlib import Path

from aotlens.errors import UserError


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--root",
        metavar="FOLDER",
        type=Path,
        default=Path(),
        help="the only folder whose scripts and reports the tools may use (default: the current one)",
    )


def run(arguments: argparse.Namespace) -> int:
    root = arguments.root.resolve()
    if not root.is_dir():
        raise UserError(f"--root {arguments.root}: no such folder")
    if find_spec("mcp") is None:
        raise UserError("the package `mcp` is not installed: run `pip install 'aotlens[mcp]'`")
    from aotlens.mcp.server import serve  # mcp takes 0.6 s

    serve(root)
    return 0
