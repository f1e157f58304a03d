"""GPU emulation, and kernels for a GPU that this machine does not have."""

from aotlens.errors import RejectedRuntimeError
from aotlens.unsupported.case import Case

CASES = (
    Case(
        "kernels-of-absent-gpu",
        "running the kernels of a target for a GPU that this machine does not have",
        "use `--backend eager` (inspect's default): the GPU's kernels are shown all the same",
    ),
    Case(
        "cuda-query",
        "`torch.cuda.{name}` where no GPU is",
        "leave CUDA graphs out: the report says whether a target can be captured",
    ),
    Case(
        "device-index",
        "`{device}`",
        "aotlens emulates one GPU: write `cuda` or `cuda:0`",
        error=RejectedRuntimeError,
    ),
    Case(
        "triton-interpreter",
        "running the Triton kernel `{kernel}` without a GPU: it {reason}",
        "`aotlens inspect --fake` runs the script without values, and shows the kernel",
    ),
)
