"""The resources of compiled kernels, against two kept cubins and, where Triton is installed, its own tool.

`scale_sm80.cubin` doubles a vector; `norm_sm120.cubin` divides 1024 values by their sum with 64 threads and
at most 24 registers, which spills.  Both were compiled by Triton 3.7 without line information.
"""

import re
import struct
import subprocess
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aotlens.codegen.gpu.machine_code.cubin import KernelResources, read_cubin
from aotlens.errors import BackendError

FOLDER = Path(__file__).with_name("cubins")
SCALE, NORM = (FOLDER / "scale_sm80.cubin").read_bytes(), (FOLDER / "norm_sm120.cubin").read_bytes()


def test_kept_cubins() -> None:
    """As `cuobjdump --dump-resource-usage` prints them: REG:28 STACK:0, and REG:24 STACK:8 SHARED:1024."""
    assert read_cubin(SCALE) == {"scale": KernelResources("scale", 80, 28, 0, 0, 128, 1152)}
    assert read_cubin(NORM) == {"norm": KernelResources("norm", 120, 24, 8, 0, 64, 2560)}


def _says(binary: bytes) -> str:
    with pytest.raises(BackendError) as raised:
        read_cubin(binary)
    return str(raised.value)


def test_what_is_no_cubin() -> None:
    assert _says(b"") == "no cubin: 0 bytes that begin with b'' instead of b'\\x7fELF'"
    assert _says(b".version 8.7") == "no cubin: 12 bytes that begin with b'.ver' instead of b'\\x7fELF'"
    x86 = SCALE[:0x12] + struct.pack("<H", 62) + SCALE[0x14:]
    assert _says(x86) == "no cubin: an ELF file for machine 62 instead of 190"


def test_a_cubin_that_is_cut_off() -> None:
    assert "a cubin of 40 bytes is cut off or damaged" in _says(SCALE[:40])
    _, sections, *_ = struct.unpack_from("<QQ", SCALE, 0x20)
    width, count = struct.unpack_from("<HH", SCALE, 0x3A)
    for length in range(64, sections + width * count, 97):
        assert "cubin" in _says(SCALE[:length])


def test_a_cubin_without_kernels() -> None:
    assert (
        _says(SCALE.replace(b".text.", b".tuxt."))
        == "a cubin without kernels: it has no section `.text.NAME`"
    )


@pytest.mark.rotates
@given(changes=st.dictionaries(st.integers(0, len(NORM) - 1), st.integers(0, 255), min_size=1, max_size=8))
@settings(max_examples=150, deadline=None)
def test_damage_gives_an_answer_or_an_error(changes: dict[int, int]) -> None:
    damaged = bytearray(NORM)
    for position, value in changes.items():
        damaged[position] = value
    with suppress(BackendError):
        read_cubin(bytes(damaged))


@given(st.lists(st.tuples(st.integers(0, len(SCALE) // 8 - 1), st.integers(0, 2**64 - 1)), max_size=3))
@settings(max_examples=150, deadline=None)
def test_wild_offsets(words: list[tuple[int, int]]) -> None:
    damaged = bytearray(SCALE)
    for index, value in words:
        struct.pack_into("<Q", damaged, index * 8, value)
    with suppress(BackendError):
        read_cubin(bytes(damaged))


def _compiled(architecture: int, folder: Path) -> Path:
    """A kernel with a reduction, held to few registers, as Triton compiles it here."""
    triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    from tests.gpu.kernels import norm

    source = ASTSource(
        fn=norm,
        signature={"x_ptr": "*fp32", "y_ptr": "*fp32", "BLOCK": "constexpr"},
        constexprs={"BLOCK": 2048},
    )
    target = GPUTarget("cuda", architecture, 32)
    kernel = triton.compile(source, target=target, options={"num_warps": 2, "maxnreg": 32})
    path = folder / f"sm_{architecture}.cubin"
    path.write_bytes(kernel.asm["cubin"])
    return path


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("architecture", [80, 90, 120])
def test_as_the_tool_of_the_toolkit_says(
    architecture: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    triton: Any = pytest.importorskip("triton", reason="Triton is not installed")
    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path / "cache"))
    path = _compiled(architecture, tmp_path)
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    said = subprocess.run(
        [str(tool), "--dump-resource-usage", str(path)], capture_output=True, text=True, check=True
    ).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+) SHARED:(\d+)", said)
    assert found is not None
    registers, frame, shared = (int(figure) for figure in found.groups())
    kernel = read_cubin(path.read_bytes())["norm"]
    reserved = 1024 if architecture >= 90 else 0
    assert (kernel.registers, kernel.frame_bytes) == (registers, frame)
    assert (kernel.shared_bytes + reserved, kernel.threads) == (shared, 64)
    assert kernel.architecture == architecture
    assert kernel.frame_bytes > 0
