"""Memory snapshots as torch writes them, made without a GPU: the same keys, states and kinds of frames."""

import pickle
from pathlib import Path
from typing import Any

MIB = 1 << 20
TORCH = "/venv/lib/python3.11/site-packages/torch"

Frame = dict[str, Any]


def frame(file: str, line: int, function: str) -> Frame:
    return {"filename": file, "line": line, "name": function}


CPP = frame("??", 0, "c10::cuda::CUDACachingAllocator::malloc")
FORWARD = [CPP, frame(f"{TORCH}/nn/functional.py", 12, "gelu"), frame("/job/model.py", 41, "forward")]
LOOP = frame("/job/train.py", 20, "main")
STACKS: dict[str, list[Frame]] = {
    "parameters": [frame(f"{TORCH}/nn/modules/module.py", 900, "_apply"), frame("/job/train.py", 9, "main")],
    "forward": [*FORWARD, LOOP],
    "compiled code": [CPP, frame("/tmp/torchinductor_me/ab/cab.py", 77, "call"), *FORWARD[2:], LOOP],
    "backward": [frame(f"{TORCH}/autograd/graph.py", 8, "_engine_run_backward"), LOOP],
    "optimizer": [frame(f"{TORCH}/optim/adamw.py", 5, "step"), frame("/job/train.py", 22, "main")],
    "not recorded": [],
}


def block(size: int, frames: list[Frame], state: str = "active_allocated") -> dict[str, Any]:
    return {"address": 0, "size": size, "requested_size": size, "state": state, "frames": frames}


def segment(*blocks: dict[str, Any], device: int = 0) -> dict[str, Any]:
    size = sum(entry["size"] for entry in blocks)
    return {"device": device, "address": 0, "total_size": size, "blocks": list(blocks), "stream": 0}


def out_of_memory(size: int, free: int, frames: list[Frame]) -> dict[str, Any]:
    return {"action": "oom", "size": size, "device_free": free, "addr": 0, "stream": 0, "frames": frames}


def failed_step() -> dict[str, Any]:
    """A training step that runs out of memory in its forward."""
    sizes = {"parameters": 24, "forward": 6, "compiled code": 40, "backward": 3, "optimizer": 48}
    blocks = [block(size * MIB, STACKS[phase]) for phase, size in sizes.items()]
    holes = [block(4 * MIB, [], "inactive"), block(2 * MIB, [], "inactive")]
    segments = [segment(*blocks, *holes), segment(block(10 * MIB, STACKS["not recorded"]))]
    return {"segments": segments, "device_traces": [[out_of_memory(5 * MIB, MIB, STACKS["forward"])]]}


def write(path: Path, data: object) -> Path:
    path.write_bytes(pickle.dumps(data))
    return path
