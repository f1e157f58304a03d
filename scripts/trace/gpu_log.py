"""Write the logs that torch.compile writes for a program on a GPU, on a machine without one.

    python scripts/trace/gpu_log.py OUT                                 tests/trace/programs/net.py on an H100
    python scripts/trace/gpu_log.py OUT --fixtures tests/trace/logs     also anonymised copies
    python scripts/trace/gpu_log.py OUT --script train.py               any script that asks torch for a GPU

OUT/net-h100 is the network in inference, OUT/net-h100-training a training step. Dynamo, AOTAutograd and
Inductor are torch's own, and torch writes the log. Only the GPU is emulated (`emulated_gpu.py`).
"""

import argparse
import os
import runpy
import shutil
import subprocess
import sys
from pathlib import Path

sys.path.append(str(Path(__file__).resolve().parents[2]))

from scripts.trace.emulated_gpu import emulated_gpu
from scripts.trace.logs import PROGRAMS, write_fixture

GPU = "h100"
NAMES = {"inference": f"net-{GPU}", "training": f"net-{GPU}-training"}
"""The folder of each log."""
ROWS = 65536
LIMIT_S = 600


def compile_net(mode: str) -> None:
    """Compile the network for the GPU."""
    import torch

    sys.path.insert(0, str(PROGRAMS))
    from net import Net  # type: ignore[import-not-found]  # the folder was just added

    is_trained = mode == "training"
    with emulated_gpu(GPU), torch.set_grad_enabled(is_trained):
        with torch.device("cuda"):
            net, x = Net(), torch.randn(ROWS, 16)
        output, flat = torch.compile(net)(x)
        if is_trained:
            (output.sum() + flat.sum()).backward()


def run_script(script: Path) -> None:
    sys.path.insert(0, str(script.parent))
    sys.argv = [str(script)]
    with emulated_gpu(GPU):
        runpy.run_path(str(script), run_name="__main__")


def write_log(folder: Path, *arguments: str) -> None:
    """Run this script again with torch's log in the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    environment = os.environ | {"TORCH_TRACE": str(folder), "INDUCTOR_PROVENANCE": "1"}
    command = [sys.executable, __file__, str(folder), *arguments, "--here"]
    subprocess.run(command, env=environment, timeout=LIMIT_S, check=True)
    print(f"{folder.name}: {sum(log.stat().st_size for log in folder.glob('*.log')):,} bytes")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("out", type=Path)
    parser.add_argument("--fixtures", type=Path)
    parser.add_argument("--script", type=Path)
    parser.add_argument("--net", choices=NAMES, help=argparse.SUPPRESS)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    out = options.out.resolve()
    if options.here:
        run_script(options.script) if options.script is not None else compile_net(options.net)
    elif options.script is not None:
        write_log(out / f"{options.script.stem}-{GPU}", "--script", str(options.script.resolve()))
    else:
        for mode, name in NAMES.items():
            write_log(out / name, "--net", mode)
            if options.fixtures is not None:
                write_fixture(out / name, options.fixtures)
    return 0


if __name__ == "__main__":
    sys.exit(main())
