"""What Inductor generated, as rows of the report: one row per kernel or library call, in call order."""

import re
from typing import Any

from aotlens.ir.program import Program
from aotlens.model.report import Kernel, Phase

_DEFINITION = re.compile(r"^(\w+) = async_compile\.(\w+)\(.*?r?'''\n(.*?)'''", re.MULTILINE | re.DOTALL)


def kernels_of(
    output_code: Any, provenance: dict[str, Any], program: Program, phase: Phase
) -> tuple[Kernel, ...]:
    """Rows from Inductor's own record of which graph nodes each kernel computes."""
    source = getattr(output_code, "source_code", "") or ""
    definitions = {name: text for name, _, text in _DEFINITION.findall(source)}
    nodes = {node.name: node for node in program.nodes}
    found: list[Kernel] = []
    for key in sorted(provenance, key=_call_order):
        name = key.rsplit(":", 1)[0]
        members = tuple(dict.fromkeys(node for node in provenance[key]["post_grad_nodes"] if node in nodes))
        spans = dict.fromkeys(
            span for node in members if (span := nodes[node].origin.place.innermost) is not None
        )
        found.append(
            Kernel(
                name=name,
                phase=phase,
                target=_device(program),
                source=definitions.get(name, ""),
                nodes=members,
                spans=tuple(spans),
            )
        )
    return tuple(found)


def call_numbers(provenance: dict[str, Any]) -> list[int]:
    """The numbers of the calls, in the order of the rows."""
    return sorted(map(_call_order, provenance))


def _call_order(key: str) -> int:
    """Inductor numbers its calls: `name:7`."""
    return int(key.rsplit(":", 1)[1])


def _device(program: Program) -> str:
    """Where the graph runs: the GPU that one of its tensors is on, else the first tensor's device."""
    values = (node.val for node in (*(given.node for given in program.inputs), *program.nodes))
    devices = [str(val.device) for val in values if hasattr(val, "device")]
    return next((device for device in devices if device.startswith("cuda")), (*devices, "cpu")[0])
