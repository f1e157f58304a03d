"""What Inductor generated, as rows of the report."""

import re
from typing import Any

from aotlens.ir.program import Program
from aotlens.report.records import Kernel, Phase

_CPP_KERNEL = re.compile(r"^(\w+)\s*=\s*async_compile\.(\w+)\(.*?'''\n(.*?)'''", re.MULTILINE | re.DOTALL)
_CALL = re.compile(r"# Topologically Sorted Source Nodes: \[(.*?)\].*?\n(?:\s*#.*\n)*\s*([\w.]+)\(", re.MULTILINE)


def kernels_of(output_code: Any, program: Program, phase: Phase) -> tuple[Kernel, ...]:
    """One row per kernel in the generated source; library calls by their name."""
    source = getattr(output_code, "source_code", "") or ""
    nodes = {node.name: node for node in program.nodes}
    sources = {name: text for name, _, text in _CPP_KERNEL.findall(source)}
    found: list[Kernel] = []
    for names, called in _CALL.findall(source):
        members = tuple(name for name in (part.strip() for part in names.split(",")) if name in nodes)
        spans = dict.fromkeys(
            span for name in members if (span := nodes[name].origin.place.innermost) is not None
        )
        found.append(
            Kernel(
                name=called,
                phase=phase,
                target="cpu" if called.startswith("cpp") or "extern" in called else "device",
                source=sources.get(called, ""),
                nodes=members,
                spans=tuple(spans),
            )
        )
    return tuple(found)
