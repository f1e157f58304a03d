"""Machine code as text, from the disassembler that comes with Triton.

Invariant: a kernel's text does not depend on the kernels that are disassembled with it.
"""

import re
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path

from aotlens.codegen.gpu.machine_code.cubin_merge import merge_cubins
from aotlens.errors import BackendError

_SECTION = re.compile(r"^//-+ \.text\.(\S+) +-+$", re.MULTILINE)
_AFTER_KERNELS = re.compile(r"^//-+ [^.].* -+$", re.MULTILINE)
"""The section after the kernels: the symbols of the whole file."""
_LABEL = re.compile(r"\.L_x_\d+")


def tools() -> Path:
    """Return the folder of NVIDIA's tools in Triton's wheel."""
    import triton  # optional dependency

    return Path(triton.__file__).parent / "backends" / "nvidia" / "bin"


def run_tool(*command: str) -> subprocess.CompletedProcess[str]:
    """Run a tool; called in a child whose time limit covers the tool."""
    return subprocess.run(command, capture_output=True, text=True, check=False)


def disassembled(cubins: Mapping[str, bytes]) -> Iterator[tuple[str, str]]:
    """Yield the SASS of each kernel by name; nothing where the disassembler is missing or does not know the
    GPU."""
    tool = tools() / "nvdisasm"
    if not tool.is_file() or not cubins:
        return
    try:
        texts = _kernels(_output(tool, merge_cubins(tuple(cubins.values()))))
    except BackendError:
        texts = {}
    for name, cubin in cubins.items():
        text = texts.get(name) or _kernels(_output(tool, cubin)).get(name)
        if text:
            yield name, text


def _output(tool: Path, cubin: bytes) -> str:
    """Return the tool's output; empty where it fails."""
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        done = run_tool(str(tool), "-c", file.name)
    return done.stdout if done.returncode == 0 else ""


def _kernels(output: str) -> dict[str, str]:
    """Return each kernel's section, below the common header."""
    head, *parts = _SECTION.split(_AFTER_KERNELS.split(output)[0])
    kernels = dict(zip(parts[::2], parts[1::2], strict=True))
    return {name: f"{head.strip()}\n\n{_renumbered_labels(text.strip())}\n" for name, text in kernels.items()}


def _renumbered_labels(text: str) -> str:
    """Number labels in order of appearance: the tool numbers them through the whole file."""
    labels: dict[str, str] = {}
    return _LABEL.sub(lambda match: labels.setdefault(match[0], f".L_{len(labels)}"), text)
