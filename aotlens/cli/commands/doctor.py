"""`aotlens doctor`: what is installed and works here; with `--report`, a bug report."""

import argparse
import importlib.util
import os
import platform
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from aotlens._version import __version__
from aotlens.cli.options import output_file
from aotlens.cli.targets import TargetName, add_compile_options, policy_of
from aotlens.cli.terminal import say, write_data
from aotlens.disk_cache import FOLDER_VARIABLE, LIMIT_BYTES, cache_folder, open_store
from aotlens.errors import UserError
from aotlens.torch_versions import SUPPORTED, is_supported
from aotlens.view.quantities import human_bytes
from aotlens.worker.protocol import TraceOptions
from aotlens.worker.start import start_method


@dataclass(frozen=True, slots=True)
class Finding:
    ok: bool
    name: str
    text: str
    needed: bool = True
    """Whether the command fails without it."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--report",
        action="store_true",
        help="write a bug report: what is installed and, for a TARGET, which runs, how it fails, a small"
        " program, and the report's JSON",
    )
    parser.add_argument(
        "--anonymous",
        action="store_true",
        help="with --report: replace names, strings, comments and paths of your code",
    )
    parser.add_argument(
        "-o", dest="output", metavar="FILE", type=output_file, help="write to this file instead of stdout"
    )
    add_compile_options(parser, backend="inductor")
    parser.add_argument(
        "target", metavar="TARGET", type=TargetName.parse, nargs="?", help="SCRIPT or SCRIPT::name"
    )


def run(arguments: argparse.Namespace) -> int:
    if not arguments.report and (arguments.target is not None or arguments.anonymous):
        raise UserError("a TARGET and --anonymous belong to a bug report: add --report")
    findings = tuple(_findings())
    width = max(len(finding.name) for finding in findings)
    rows = "".join(f"{_mark(finding)}  {finding.name:<{width}}  {finding.text}\n" for finding in findings)
    if arguments.report:
        return _write_report(arguments, rows)
    write_data(rows, arguments.output)
    return 0 if all(finding.ok for finding in findings if finding.needed) else 1


def _write_report(arguments: argparse.Namespace, installed: str) -> int:
    from aotlens.cli.bug_report import collect, json_file, written  # only with --report

    policy = str(policy_of(arguments))
    options = TraceOptions(backend=arguments.backend, dynamic=arguments.dynamic, policy=policy)
    bug = collect(arguments.target, arguments.argv, options, installed)
    text, attachment = written(bug, arguments.output, arguments.anonymous)
    write_data(text, arguments.output)
    if arguments.output is not None:
        say(f"wrote {arguments.output}")
        if attachment is not None:
            write_data(attachment, str(json_file(arguments.output)))
            say(f"wrote {json_file(arguments.output)}: attach it to the issue")
    if not arguments.anonymous:
        say(
            "aotlens: the report contains your paths and code: read it before you post it, or add --anonymous"
        )
    return 0


def _mark(finding: Finding) -> str:
    return "ok     " if finding.ok else "MISSING" if finding.needed else "none   "


def _findings() -> Iterator[Finding]:
    yield Finding(True, "aotlens", __version__)
    yield Finding(True, "python", f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield _torch()
    for package, purpose in (
        ("ortools", "the min-cut partition"),
        ("textual", "aotlens tui"),
        ("pygls", "aotlens lsp"),
        ("rich", "text reports"),
    ):
        yield _package(package, purpose)
    if importlib.util.find_spec("torch") is not None:
        yield _dynamo_backend()
        yield _cpu_code()
        yield _gpu()
        yield _triton()
        yield _agents()
        yield _worker()
    yield _cache()
    yield from _gpu_targets()


def _worker() -> Finding:
    try:
        method = start_method()
    except UserError as error:
        return Finding(False, "worker", str(error))
    how = (
        "forked children of one process"
        if method == "fork"
        else "fresh processes, which load torch each time"
    )
    return Finding(True, "worker", f"traces run in {how}")


def _cache() -> Finding:
    folder, store = cache_folder(), open_store()
    if folder is None:
        return Finding(False, "cache", f"off: {FOLDER_VARIABLE} is empty", needed=False)
    if store is None:
        text = f"not used: {folder} cannot be written to, or others can write to it too"
        return Finding(False, "cache", text, needed=False)
    sizes = f"{human_bytes(store.size_bytes())} of at most {human_bytes(LIMIT_BYTES)}"
    return Finding(True, "cache", f"{folder}, {sizes}", needed=False)


def _torch() -> Finding:
    try:
        installed = version("torch")
    except PackageNotFoundError:
        return Finding(False, "torch", "not installed: pip install torch")
    supported = is_supported(installed)
    return Finding(
        supported, "torch", installed if supported else f"{installed}, untested: supported are {SUPPORTED}"
    )


def _package(name: str, purpose: str) -> Finding:
    try:
        return Finding(True, name, f"{version(name)}, for {purpose}")
    except PackageNotFoundError:
        return Finding(False, name, f"not installed, needed for {purpose}: pip install {name}")


def _dynamo_backend() -> Finding:
    from importlib.metadata import entry_points

    known = {entry.name for entry in entry_points(group="torch_dynamo_backends")}
    if "aotlens" in known:
        return Finding(True, "torch.compile", 'backend="aotlens" is registered', needed=False)
    text = 'backend="aotlens" is not registered: install aotlens with pip (a checkout alone is not enough)'
    return Finding(False, "torch.compile", text, needed=False)


def _cpu_code() -> Finding:
    compiler = next(
        (name for name in (os.environ.get("CXX"), "g++", "clang++") if name and shutil.which(name)), None
    )
    if compiler is None:
        return Finding(
            False, "cpu kernels", "no C++ compiler found; --backend eager works without", needed=False
        )
    return Finding(True, "cpu kernels", f"generated and run with {compiler}", needed=False)


def _gpu() -> Finding:
    import torch  # takes seconds, and only if it is installed

    if not torch.cuda.is_available():
        return Finding(False, "gpu", "none that this torch can use: kernels are shown, not run", needed=False)
    names = ", ".join(torch.cuda.get_device_name(index) for index in range(torch.cuda.device_count()))
    return Finding(True, "gpu", names, needed=False)


def _triton() -> Finding:
    try:
        text = f"{version('triton')}, generates code for GPU targets, which need not be present"
        return Finding(True, "triton", text, needed=False)
    except PackageNotFoundError:
        return Finding(
            False,
            "triton",
            "not installed, needed only for GPU targets: pip install 'aotlens[gpu]'",
            needed=False,
        )


def _agents() -> Finding:
    try:
        return Finding(True, "mcp", f"{version('mcp')}, for aotlens mcp", needed=False)
    except PackageNotFoundError:
        text = "not installed, needed only for agents: pip install 'aotlens[mcp]'"
        return Finding(False, "mcp", text, needed=False)


def _gpu_targets() -> Iterator[Finding]:
    """Yield one line for each architecture, beginning with the GPU that its name means."""
    generated = importlib.util.find_spec("triton") is not None
    from aotlens.model.gpus.names import target_names  # a table of code generation, needed only here

    for architecture, names in target_names().items():
        yield Finding(generated, architecture, ", ".join(names), needed=False)
