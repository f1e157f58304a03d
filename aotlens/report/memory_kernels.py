"""What operators' kernels allocate while they run, beside their operands and results; on the CPU.

Invariant: only what a kernel gives back before it returns is counted here; a rule stands for what torch's
own kernels do, as measured in `tests/engine/test_memory_peak.py`.
"""

from aotlens.ir.program import Node


def working_bytes(node: Node) -> int:
    """Bytes beside operands and results; 0 for an operator without a rule."""
    return 0
