"""Data from which clients build menus and terminals.

Invariant: reads stored traces, and runs nothing.
"""

import asyncio
import sys
from dataclasses import replace
from pathlib import Path

from lsprotocol import types

from aotlens.model import dumps
from aotlens.model.gpus.targets import TARGETS as GPU_TARGETS
from aotlens.model.report import Report, Target
from aotlens.view.quantities import target_summary
from lsp_server.app import Server, path_of
from lsp_server.runs.tracer import Result
from lsp_server.settings import Settings
from lsp_server.translate.diagnostics import uri_of
from lsp_server.translate.pages import parts_of
from lsp_server.views import TargetKey, target_key

TARGETS, TUI, GPUS = "aotlens.targets", "aotlens.tui", "aotlens.gpus"
NO_KERNELS = "no kernels"
"""The choice of no GPU."""


async def gpus(server: Server) -> Result:
    """Return the GPUs that `aotlens.gpu` takes, and the current one."""
    choices = [{"name": gpu.name, "architecture": gpu.sm, "memoryGiB": gpu.memory_gib} for gpu in GPU_TARGETS]
    return {"gpus": choices, "current": server.settings.gpu}


async def asked_gpu(server: Server) -> str | None:
    """Let the user choose in a message of the editor; None if it was closed."""
    names = [NO_KERNELS, *(gpu.name for gpu in GPU_TARGETS)]
    params = types.ShowMessageRequestParams(
        type=types.MessageType.Info,
        message="aotlens: kernels for which GPU? It need not be present.",
        actions=[types.MessageActionItem(name) for name in names],
    )
    answer = await server.window_show_message_request_async(params)
    return answer.title if answer is not None else None


async def targets(server: Server, uri: str | None = None) -> list[Result]:
    """Return the traced targets of one script or of all, each with its documents."""
    path = path_of(uri) if uri else None
    newest: dict[tuple[str, TargetKey], Target] = {}
    for held in sorted(server.views.traces.values(), key=lambda trace: trace.number, reverse=True):
        script = held.key[0]
        if uri is None or script == path:
            for target in held.report.targets:
                newest.setdefault((script, target_key(target)), target)
    return [
        {
            "uri": uri_of(server.views, script),
            "qualname": target.qualname,
            "summary": target_summary(target),
            "parts": list(parts_of(target)),
            "exportsTo": exported_file(script, target.qualname).as_uri(),
        }
        for (script, _), target in newest.items()
    ]


def exported_file(script: str, qualname: str) -> Path:
    """`model.py` and `Block.forward` give `model_Block_forward_exported.py`."""
    path = Path(script)
    return path.with_name(f"{path.stem}_{qualname.replace('.', '_')}_exported.py")


async def tui_command(server: Server, uri: str, qualname: str | None = None) -> Result:
    """Return the command line of the terminal app for a target, and its working folder."""
    path = path_of(uri)
    if path is None:
        return {"command": None, "message": f"{uri} is not a file on disk"}
    report = _newest_report(server, path, qualname)
    shown = ["--report", await _written(server, path, qualname, report)] if report else []
    target = f"{path}::{qualname}" if qualname else path
    python = server.settings.python or sys.executable
    # -P: the folder that it runs in must not hide our modules, or torch's.
    command = [python, "-P", "-m", "aotlens", "tui", target, *shown, *_options(server.settings)]
    return {"command": command, "cwd": server.tracer.cwd}


def _newest_report(server: Server, path: str, qualname: str | None) -> Report | None:
    """Return the newest trace, so that the app opens with the editor's facts; None without one."""
    for held in sorted(server.views.traces.values(), key=lambda trace: trace.number, reverse=True):
        wanted = tuple(target for target in held.report.targets if qualname in (None, target.qualname))
        if held.key[0] == path and wanted and (qualname is not None or held.key[1] is None):
            return replace(held.report, targets=wanted)
    return None


async def _written(server: Server, path: str, qualname: str | None, report: Report) -> str:
    """Return the path of the report in a file; a long one takes a while to write as JSON."""
    text = await asyncio.get_running_loop().run_in_executor(None, dumps, report)
    address = server.written.report(path, qualname or "all", text)
    return path_of(address) or address


def _options(settings: Settings) -> list[str]:
    options = ["--gpu", settings.gpu] if settings.gpu else []
    options += ["--policy", settings.policy] if settings.policy != Settings().policy else []
    options += ["--", *settings.args] if settings.args else []
    return options
