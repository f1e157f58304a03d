"""The GPUs that a user can choose, for pickers that load no engine.

Invariant: names and figures are those of `aotlens/codegen/gpu/targets.py`; a test compares them. They are
repeated because `view` imports nothing from the engine.
"""

from dataclasses import dataclass

__all__ = ["GPU_CHOICES", "GpuChoice"]


@dataclass(frozen=True, slots=True)
class GpuChoice:
    """One GPU."""

    name: str
    """As `--gpu` takes it."""
    sm: str
    """The architecture: `sm_90`."""
    memory_gib: int

    @property
    def facts(self) -> str:
        return f"{self.sm}, {self.memory_gib} GiB"


GPU_CHOICES: tuple[GpuChoice, ...] = (
    GpuChoice("V100", "sm_70", 16),
    GpuChoice("T4", "sm_75", 16),
    GpuChoice("A100 80GB", "sm_80", 80),
    GpuChoice("A100 40GB", "sm_80", 40),
    GpuChoice("A100 PCIe", "sm_80", 80),
    GpuChoice("RTX 3090", "sm_86", 24),
    GpuChoice("RTX 3080", "sm_86", 10),
    GpuChoice("A10", "sm_86", 24),
    GpuChoice("A40", "sm_86", 48),
    GpuChoice("RTX A6000", "sm_86", 48),
    GpuChoice("RTX 4090", "sm_89", 24),
    GpuChoice("RTX 4080", "sm_89", 16),
    GpuChoice("L4", "sm_89", 24),
    GpuChoice("L40", "sm_89", 48),
    GpuChoice("L40S", "sm_89", 48),
    GpuChoice("H100 SXM", "sm_90", 80),
    GpuChoice("H100 PCIe", "sm_90", 80),
    GpuChoice("H100 NVL", "sm_90", 94),
    GpuChoice("H200", "sm_90", 141),
    GpuChoice("GH200", "sm_90", 96),
    GpuChoice("B200", "sm_100", 180),
    GpuChoice("RTX 5090", "sm_120", 32),
    GpuChoice("RTX 5080", "sm_120", 16),
)
"""In the order of their architectures."""
