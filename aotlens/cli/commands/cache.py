"""`aotlens cache info|clear`: what is kept on disk between runs."""

import argparse

from aotlens.cli.terminal import say, write_data
from aotlens.disk_cache import FOLDER_VARIABLE, Store, cache_folder, open_store
from aotlens.errors import UserError
from aotlens.view.quantities import counted, human_bytes

KINDS = {
    "answers": "reports of `aotlens inspect`",
    "compiled": "module texts of `aotlens run`",
    "compiled-code": "Inductor's code of their graphs",
    "compiled-reports": "reports of them",
    "fit-results": "results of `aotlens fit`",
    "gpu-graphs": "GPU code of graphs",
    "gpu-kernels": "kernels compiled for a GPU",
    "gpu-sass": "disassembled kernels",
}


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("action", choices=("info", "clear"), nargs="?", default="info", help="default: info")


def run(arguments: argparse.Namespace) -> int:
    store = _store()
    if arguments.action == "clear":
        number, size_bytes = store.clear()
        say(f"removed {counted(number, 'file')}, {human_bytes(size_bytes)}, from {store.folder}")
        return 0
    write_data("".join(f"{line}\n" for line in _lines(store)), None)
    return 0


def _store() -> Store:
    """Return the cache folder.  Raises UserError if nothing is stored."""
    folder = cache_folder()
    if folder is None:
        raise UserError(f"nothing is stored: {FOLDER_VARIABLE} is empty")
    store = open_store()
    if store is None:
        raise UserError(f"nothing is stored: {folder} cannot be made private to you; set {FOLDER_VARIABLE}")
    return store


def _lines(store: Store) -> list[str]:
    usage = store.by_kind()
    number, size_bytes = (sum(column) for column in zip(*usage.values(), strict=True)) if usage else (0, 0)
    limit = f"of at most {human_bytes(store.limit_bytes)}; the least recently used entries are removed first"
    lines = [
        f"{store.folder}  ({FOLDER_VARIABLE})",
        f"{counted(number, 'file')}, {human_bytes(size_bytes)} {limit}",
    ]
    width = max((len(kind) for kind in usage), default=0)
    for kind, (entries, kind_bytes) in usage.items():
        about = f"  {KINDS[kind]}" if kind in KINDS else ""
        lines.append(f"  {kind:<{width}}  {entries:>6}  {human_bytes(kind_bytes):>10}{about}")
    return lines
