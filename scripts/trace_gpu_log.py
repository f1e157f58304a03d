"""Write the log that torch.compile writes for a program on a GPU, on a machine without one.

    python scripts/trace_gpu_log.py OUT                                 tests/trace/programs/net.py on an H100
    python scripts/trace_gpu_log.py OUT --fixtures tests/trace/logs     also an anonymised copy

Dynamo, AOTAutograd and Inductor are torch's own, and torch writes the log. Only the GPU is emulated: tensors
have no memory, and the program stops where the first kernel would be launched, so there is no backward.
"""

import argparse
import os
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[1]))

from scripts.trace_logs import PROGRAMS, write_fixture

GPU = "h100"
NAME = f"net-{GPU}"
ROWS = 65536
LIMIT_S = 600
LAUNCH = "_cuda_setDevice"
"""What the generated code asks for first, and only a build of torch with CUDA has."""


def compile_net() -> None:
    """Compile the network for the GPU, up to its first launch."""
    import torch
    from torch._subclasses import FakeTensorMode

    from aotlens.codegen.gpu.offline.context import offline_gpu
    from aotlens.codegen.gpu.targets import find_target

    sys.path.insert(0, str(PROGRAMS))
    from net import Net  # type: ignore[import-not-found]  # the folder was just added

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    with offline_gpu(find_target(GPU)), mode, torch.no_grad():
        with torch.device("cuda"):
            net, x = Net(), torch.randn(ROWS, 16)
        try:
            torch.compile(net)(x)
        except AttributeError as error:
            if LAUNCH not in str(error):
                raise


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--fixtures", type=Path)
    parser.add_argument("--compile", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.compile:
        compile_net()
        return 0
    folder = options.out.resolve() / NAME
    shutil.rmtree(folder, ignore_errors=True)
    environment = os.environ | {"TORCH_TRACE": str(folder), "INDUCTOR_PROVENANCE": "1"}
    command = [sys.executable, __file__, str(options.out), "--compile"]
    subprocess.run(command, env=environment, timeout=LIMIT_S, check=True)
    if options.fixtures is not None:
        write_fixture(folder, options.fixtures)
    print(f"{NAME}: {sum(log.stat().st_size for log in folder.glob('*.log')):,} bytes")
    return 0


if __name__ == "__main__":
    sys.exit(main())
