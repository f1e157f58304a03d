"""The cache of generated GPU code, by program, by kernel, and by machine code.

Invariant: a key names everything on which the result depends: the source text, the target's figures, the
versions, this package's own code, and the environment variables that torch and Triton read.
"""

import logging
import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Any, TypeVar

from aotlens.codegen.gpu.fingerprint import program_fingerprint
from aotlens.codegen.gpu.records import BuiltKernel, KernelSource, LoweredGraph
from aotlens.disk_cache import Store, digest, open_store
from aotlens.errors import ReportError
from aotlens.ir.fingerprint import NoFingerprintError
from aotlens.model.codec import decode_record, encode_record
from aotlens.model.gpus.gpu_target import GpuTarget
from aotlens.partition.records import Partitioned
from aotlens.process import may_have_gpu

__all__ = ["GpuCache"]

T = TypeVar("T")

_PREFIXES = ("TRITON_", "TORCH", "MLIR_", "LLVM_", "PTXAS_", "NVPTX_", "DISABLE_", "CUDA_")
_FOLDERS = ("TRITON_CACHE_DIR", "TRITON_HOME", "TRITON_DUMP_DIR", "TORCHINDUCTOR_CACHE_DIR", "TORCH_HOME")
"""Where torch and Triton write files, which does not affect their contents."""

_LOG = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class _Graphs:
    """A cache record of lowered graphs."""

    graphs: tuple[LoweredGraph, ...]


@dataclass(frozen=True, slots=True)
class _Text:
    """A cache record of a text."""

    text: str


class GpuCache:
    """The cache of one target; it stores nothing where there is no store."""

    def __init__(self, target: GpuTarget) -> None:
        self._store: Store | None = open_store()
        self._base_key = digest(repr(target), *_environment_lines()) if self._store is not None else ""

    def graphs_key(self, parts: Partitioned, config: dict[str, Any]) -> str | None:
        """Return the key of the graphs; None where they have no fingerprint, so that they are generated each
        time."""
        if self._store is None:
            return None
        try:
            return digest(self._base_key, program_fingerprint(parts, config))
        except NoFingerprintError as error:
            _LOG.debug("the graphs of %s are not cached: %s", parts.joint.captured.subject.name, error)
            return None

    def graphs(self, key: str | None) -> tuple[LoweredGraph, ...] | None:
        entry = self._get("gpu-graphs", key, _Graphs)
        return None if entry is None else entry.graphs

    def put_graphs(self, key: str | None, graphs: tuple[LoweredGraph, ...]) -> None:
        self._put("gpu-graphs", key, _Graphs(graphs))

    def kernel(self, source: KernelSource) -> BuiltKernel | None:
        return self._get("gpu-kernels", self._kernel_key(source), BuiltKernel)

    def put_kernel(self, source: KernelSource, built: BuiltKernel) -> None:
        """Store a kernel unless it failed: a timeout or crash may not recur."""
        if not built.error:
            self._put("gpu-kernels", self._kernel_key(source), built)

    def sass(self, cubin: bytes) -> str | None:
        entry = self._get("gpu-sass", digest(self._base_key, cubin), _Text)
        return None if entry is None else entry.text

    def put_sass(self, cubin: bytes, text: str) -> None:
        self._put("gpu-sass", digest(self._base_key, cubin), _Text(text))

    def _kernel_key(self, source: KernelSource) -> str:
        return digest(self._base_key, repr(source))

    def _get(self, kind: str, key: str | None, record: type[T]) -> T | None:
        if self._store is None or key is None:
            return None
        value = self._store.get(kind, key)
        try:
            return None if value is None else decode_record(record, value)
        except ReportError as error:
            _LOG.debug("ignored an entry of %s: %s", kind, error)
            return None

    def _put(self, kind: str, key: str | None, record: Any) -> None:
        if self._store is not None and key is not None:
            self._store.put(kind, key, encode_record(record))


def _environment_lines() -> list[str]:
    """Return everything on which all results depend, besides their own text."""
    read = [f"{name}={value}" for name, value in sorted(os.environ.items()) if _is_read(name)]
    # With a GPU, torch may autotune instead of using heuristics.
    return [*_versions(), f"driver {may_have_gpu()}", *read]


def _is_read(name: str) -> bool:
    return name.startswith(_PREFIXES) and name not in _FOLDERS


@cache
def _versions() -> tuple[str, ...]:
    lines = [sys.version]
    for package in ("torch", "triton"):
        try:
            lines.append(f"{package} {version(package)}")
        except PackageNotFoundError:
            lines.append(f"no {package}")
    return (*lines, digest(*(file.read_bytes() for file in _own_code())))


def _own_code() -> Iterator[Path]:
    """Yield the files of this package that affect the results, so that changes to them invalidate entries."""
    package = Path(__file__).parents[2]
    yield package / "model" / "codec.py"
    yield package / "partition" / "flops.py"
    yield package / "capture" / "operators.py"
    for folder in ("model/gpus", "ir", "codegen", "torch_api"):
        yield from sorted((package / folder).rglob("*.py"))
