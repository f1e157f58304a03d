"""Occupancy and the limits of architectures against the calculator that NVIDIA ships, over many blocks."""

import ctypes
import shutil
import subprocess
from importlib.util import find_spec
from itertools import product
from pathlib import Path

import pytest

from aotlens.codegen.gpu.cost_model.occupancy import Block, occupancy
from aotlens.model.gpus.architectures import ARCHITECTURES, Architecture

THREADS = (32, 64, 96, 128, 256, 320, 512, 1024)
REGISTERS = (16, 24, 32, 33, 40, 64, 72, 96, 128, 168, 255)
SHARED = (0, 8, 1024, 4096, 16384, 33000, 49152, 65536, 98304, 99 * 1024, 163 * 1024, 227 * 1024)


@pytest.fixture(scope="module")
def calculator(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    triton, compiler = find_spec("triton"), shutil.which("cc")
    if triton is None or triton.origin is None or compiler is None:
        pytest.skip("the calculator is a header that comes with Triton, and needs a C compiler")
    header = Path(triton.origin).parent / "backends" / "nvidia" / "include"
    if not (header / "cuda_occupancy.h").exists():
        pytest.skip("this Triton brings no cuda_occupancy.h")
    library = tmp_path_factory.mktemp("calculator") / "occupancy.so"
    source = Path(__file__).with_name("nvidia_occupancy.c")
    subprocess.run([compiler, "-shared", "-fPIC", f"-I{header}", source, "-o", library], check=True)
    loaded = ctypes.CDLL(str(library))
    loaded.active_blocks.argtypes = [
        ctypes.POINTER(ctypes.c_int),
        ctypes.c_int,
        ctypes.c_int,
        ctypes.c_size_t,
        ctypes.c_size_t,
    ]
    return loaded


@pytest.mark.parametrize("architecture", ARCHITECTURES, ids=lambda architecture: architecture.sm)
def test_blocks_for_each_multiprocessor(calculator: ctypes.CDLL, architecture: Architecture) -> None:
    device = (ctypes.c_int * 10)(
        *architecture.compute_capability,
        architecture.threads_per_block,
        architecture.threads_per_multiprocessor,
        architecture.registers_per_block,
        architecture.registers_per_multiprocessor,
        architecture.warp_size,
        architecture.shared_kib_per_multiprocessor * 1024,
        architecture.shared_kib_per_block * 1024,
        architecture.reserved_shared_bytes,
    )
    cases = list(product(THREADS, REGISTERS, SHARED))
    expected = {case: calculator.active_blocks(device, case[0], case[1], 0, case[2]) for case in cases}
    found = {case: occupancy(architecture, Block(*case)).blocks for case in cases}
    assert {case: (found[case], expected[case]) for case in cases if found[case] != expected[case]} == {}
