"""The table of GPUs for which code can be generated, one row each, also for pickers that load no engine.

Invariant: every figure comes from the document that the row names, as dense rates (vendors also publish rates
for matrices of which half is zero). Rates outside of the matrix units are derived from the clock and the
architecture's lanes; tests compare them with the published rates, and the table with torch's data sheets and
Triton's profiler where these have the GPU.
"""

from aotlens.model.gpus.architectures import BY_CAPABILITY
from aotlens.model.gpus.gpu_target import GpuTarget, Rates

VOLTA, TURING = BY_CAPABILITY[7, 0], BY_CAPABILITY[7, 5]
AMPERE, GEFORCE_AMPERE = BY_CAPABILITY[8, 0], BY_CAPABILITY[8, 6]
ADA, HOPPER = BY_CAPABILITY[8, 9], BY_CAPABILITY[9, 0]
BLACKWELL, GEFORCE_BLACKWELL = BY_CAPABILITY[10, 0], BY_CAPABILITY[12, 0]

A100 = Rates(312, 312, 156, 19.5, None, 624)
H100 = Rates(989.4, 989.4, 494.7, 66.9, 1978.9, 1978.9)
TURING_PAPER = "NVIDIA Turing GPU architecture whitepaper"
AMPERE_PAPER = "NVIDIA A100 Tensor Core GPU architecture whitepaper"
HOPPER_PAPER = "NVIDIA H100 Tensor Core GPU architecture whitepaper"
GA102_PAPER = "NVIDIA Ampere GA102 GPU architecture whitepaper"
ADA_PAPER = "NVIDIA Ada GPU architecture whitepaper"
RTX_BLACKWELL_PAPER = "NVIDIA RTX Blackwell GPU architecture whitepaper"

# columns: name, aliases; architecture, multiprocessors, memory GiB, GB/s, L2 MiB, MHz, matrix rates; source
# The formatter would put every figure on its own line, so that GPUs could not be compared.
# fmt: off
TARGETS = (
    GpuTarget("V100", ("V100 SXM2", "Tesla V100-SXM2-16GB"),
              VOLTA,              80,  16,  900,   6, 1530, Rates(125),
              "NVIDIA Tesla V100 GPU architecture whitepaper (SXM2)"),
    GpuTarget("T4", (),
              TURING,             40,  16,  320,   4, 1590, Rates(65, i8=130),
              f"NVIDIA T4 datasheet and product brief; {TURING_PAPER} (L2)"),
    GpuTarget("A100 80GB", ("A100", "A100 SXM", "A100-SXM4-80GB"),
              AMPERE,            108,  80, 2039,  40, 1410, A100,
              f"NVIDIA A100 datasheet (SXM); {AMPERE_PAPER}"),
    GpuTarget("A100 40GB", ("A100-SXM4-40GB",),
              AMPERE,            108,  40, 1555,  40, 1410, A100,
              f"NVIDIA A100 datasheet (SXM); {AMPERE_PAPER}"),
    GpuTarget("A100 PCIe", ("A100 80GB PCIe",),
              AMPERE,            108,  80, 1935,  40, 1410, A100,
              f"NVIDIA A100 datasheet (PCIe 80 GB); {AMPERE_PAPER}"),
    GpuTarget("RTX 3090", ("3090",),
              GEFORCE_AMPERE,     82,  24,  936,   6, 1695, Rates(71, 71, 35.6, i8=284),
              GA102_PAPER),
    GpuTarget("RTX 3080", ("3080",),
              GEFORCE_AMPERE,     68,  10,  760,   5, 1710, Rates(59.5, 59.5, 29.8, i8=238),
              GA102_PAPER),
    GpuTarget("A10", (),
              GEFORCE_AMPERE,     72,  24,  600,   6, 1695, Rates(125, 125, 62.5, i8=250),
              f"NVIDIA A10 datasheet; {GA102_PAPER} (L2)"),
    GpuTarget("A40", (),
              GEFORCE_AMPERE,     84,  48,  696,   6, 1740, Rates(149.7, 149.7, 74.8, i8=299.3),
              f"NVIDIA A40 datasheet; {GA102_PAPER} (L2)"),
    GpuTarget("RTX A6000", ("A6000",),
              GEFORCE_AMPERE,     84,  48,  768,   6, 1800, Rates(154.8, 154.8, 77.4, i8=309.7),
              GA102_PAPER),
    GpuTarget("RTX 4090", ("4090",),
              ADA,               128,  24, 1008,  72, 2520, Rates(165.2, 165.2, 82.6, f8=330.3, i8=660.6),
              ADA_PAPER),
    GpuTarget("RTX 4080", ("4080",),
              ADA,                76,  16,  717,  64, 2505, Rates(97.5, 97.5, 48.7, f8=194.9, i8=389.9),
              ADA_PAPER),
    GpuTarget("L4", (),
              ADA,                58,  24,  300,  48, 2040, Rates(121, 121, 60, f8=242.5, i8=242.5),
              f"NVIDIA L4 datasheet and product brief; {ADA_PAPER} (L2)"),
    GpuTarget("L40", (),
              ADA,               142,  48,  864,  96, 2490, Rates(181, 181, 90.5, f8=362, i8=362),
              f"NVIDIA L40 datasheet and product brief; {ADA_PAPER} (L2)"),
    GpuTarget("L40S", (),
              ADA,               142,  48,  864,  96, 2520, Rates(362, 362, 183, f8=733, i8=733),
              f"NVIDIA L40S datasheet and product brief; {ADA_PAPER} (L2)"),
    GpuTarget("H100 SXM", ("H100", "H100 SXM5", "H100 80GB HBM3"),
              HOPPER,            132,  80, 3350,  50, 1980, H100,
              f"NVIDIA H100 datasheet; {HOPPER_PAPER} (SXM5; matrix rates are stated at 1830 MHz)"),
    GpuTarget("H100 PCIe", (),
              HOPPER,            114,  80, 2039,  50, 1755, Rates(756, 756, 378, 51.2, 1513, 1513),
              f"{HOPPER_PAPER} (PCIe; matrix rates at 1620 MHz)"),
    GpuTarget("H100 NVL", (),
              HOPPER,            132,  94, 3900,  50, 1785, Rates(835.5, 835.5, 417.5, 60, 1671, 1671),
              "NVIDIA H100 NVL datasheet and product brief"),
    GpuTarget("H200", ("H200 SXM",),
              HOPPER,            132, 141, 4800,  50, 1980, H100,
              f"NVIDIA H200 datasheet (SXM); {HOPPER_PAPER} (the same chip as H100 SXM)"),
    GpuTarget("GH200", ("GH200 480GB",),
              HOPPER,            132,  96, 4000,  50, 1980, H100,
              f"NVIDIA GH200 datasheet (HBM3); {HOPPER_PAPER} (the same chip as H100 SXM)"),
    GpuTarget("B200", (),
              BLACKWELL,         148, 180, 8000, 126, 1965, Rates(2250, 2250, 1125, 37, 4500, 4500),
              "NVIDIA HGX B200 and DGX B200 datasheets; multiprocessors, clock and L2: not published, from"
              " what devices report of themselves"),
    GpuTarget("RTX 5090", ("5090",),
              GEFORCE_BLACKWELL, 170,  32, 1792,  96, 2407, Rates(209.5, 209.5, 104.8, f8=419, i8=838),
              RTX_BLACKWELL_PAPER),
    GpuTarget("RTX 5080", ("5080",),
              GEFORCE_BLACKWELL,  84,  16,  960,  64, 2617, Rates(112.6, 112.6, 56.3, f8=225.1, i8=450.2),
              RTX_BLACKWELL_PAPER),
)
# fmt: on
"""By architecture, in the order in which pickers list them."""
