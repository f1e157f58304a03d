"""Compile one Triton kernel from Inductor's source to machine code, and read the resources that it needs."""

import contextlib
import io
import logging
import re
from collections.abc import Iterator
from typing import Any

from aotlens.codegen.gpu.machine_code.cubin import read_cubin
from aotlens.codegen.gpu.records import BuiltConfig, BuiltKernel, KernelSource
from aotlens.codegen.kernels import chosen_config
from aotlens.errors import BackendError
from aotlens.model.report import KernelChoice
from aotlens.torch_api.gpu import compiling_modules
from aotlens.torch_api.triton import use_bundled_triton_tools

TEXTS = ("ttir", "ttgir", "llir", "ptx")
"""Triton's own stages, in order; `aotlens.codegen.gpu.machine_code.disassembly` adds the last language."""
MOST_SPILLED_WORDS = 16
"""Inductor does not autotune configurations that spill more than this."""

BLOCKS = ("BLOCK", "GROUP_M", "SPLIT_K")
"""Prefixes of the names of a template's block sizes."""

_LOCATION = re.compile(r" loc\((?:[^()]|\([^()]*\))*\)")
_LOCATION_TABLE = re.compile(r"^#loc\d* = .*\n", re.MULTILINE)
_SPILLS = re.compile(r"(\d+) bytes spill stores, (\d+) bytes spill loads")


def prepare() -> None:
    """Do what every child would repeat: imports, and Triton's hash of its own library (0.3 s)."""
    from triton.runtime.cache import triton_key  # optional dependency

    compiling_modules()
    triton_key()


def build_kernel(kernel: KernelSource) -> BuiltKernel:
    """Compile every configuration; call it within `offline_gpu`, in a process of its own.

    Raises:
        BackendError: Triton rejects a line of the kernel.  Other errors of Triton propagate.
    """
    logging.disable()  # torch logs the whole kernel on failure; the error is enough
    modules = compiling_modules()
    use_bundled_triton_tools()
    autotuner = modules.codecache._load_triton_kernel_from_source(kernel.name, kernel.source)
    _compile(autotuner)
    results = sorted(  # stable: Inductor's order otherwise
        _usable(autotuner), key=lambda result: (not _has_won(result.config, kernel.ran), _spills_much(result))
    )
    configs = tuple(_config(autotuner, result, kernel) for result in results)
    chosen: dict[str, Any] = results[0].kernel.asm
    texts = tuple((name, without_mlir_locations(str(chosen[name]))) for name in TEXTS if name in chosen)
    return BuiltKernel(kernel.name, configs, texts, chosen["cubin"])


def _compile(autotuner: Any) -> None:
    from triton.compiler.errors import CompilationError  # optional dependency

    try:
        autotuner.precompile(warm_cache_only=False)
    except CompilationError as error:
        lines = (error.src or "").splitlines()
        line_number = getattr(error.node, "lineno", 0)
        text = f", `{lines[line_number - 1].strip()}`" if 0 < line_number <= len(lines) else ""
        raise BackendError(
            f"Triton rejects line {line_number} of the kernel{text}: {_last_line(error)}"
        ) from error


def _last_line(error: Exception) -> str:
    """Return the error's own message, below the kernel lines that it quotes."""
    return str(error).strip().splitlines()[-1]


def without_mlir_locations(text: str) -> str:
    """Return the text without MLIR's source locations, which are half of it and not part of the program."""
    return _LOCATION.sub("", _LOCATION_TABLE.sub("", text))


def _usable(autotuner: Any) -> Iterator[Any]:
    """Yield the compiled configurations that fit the GPU."""
    fitting = {id(launcher.config) for launcher in autotuner.launchers}
    for result in autotuner.compile_results:
        if id(result.config) in fitting:
            yield result


def _has_won(config: Any, ran: KernelChoice | None) -> bool:
    return ran is not None and ran == chosen_config(config)


def _spills_much(result: Any) -> bool:
    return int(result.kernel.n_spills or 0) > MOST_SPILLED_WORDS


def _config(autotuner: Any, result: Any, kernel: KernelSource) -> BuiltConfig:
    compiled, config = result.kernel, result.config
    resources = read_cubin(compiled.asm["cubin"])[compiled.name]
    values = {**_template_blocks(autotuner), **_constants(autotuner), **config.kwargs}
    values = {name: value for name, value in values.items() if type(value) is int}  # without flags
    return BuiltConfig(
        values=tuple(values.items()),
        warps=config.num_warps,
        stages=config.num_stages,
        registers=resources.registers,
        frame_bytes=resources.frame_bytes,
        spill_bytes=_spill_bytes(compiled) if resources.frame_bytes else 0,
        shared_bytes=compiled.metadata.shared + resources.shared_bytes,
        grids=tuple(_grid(autotuner, config, call.arguments) for call in kernel.calls),
    )


def _template_blocks(autotuner: Any) -> dict[str, Any]:
    """Return the block sizes that a template inlines into its text."""
    config_args = autotuner.inductor_meta.get("config_args", {})
    return {name: value for name, value in config_args.items() if name.startswith(BLOCKS)}


def _constants(autotuner: Any) -> dict[str, Any]:
    """Return the `tl.constexpr` arguments of a user kernel; Inductor's own kernels have block sizes only."""
    fn = autotuner.fn
    declared = {fn.arg_names[index] for index in fn.constexprs}
    constants = autotuner.triton_meta.get("constants", {})
    return {str(name): value for name, value in constants.items() if name in declared and type(value) is int}


def _grid(autotuner: Any, config: Any, call: tuple[str, ...]) -> tuple[int, int, int] | None:
    """Return the grid of one launch; None where an argument on which it depends is not a number."""
    names = autotuner.triton_meta["signature"]  # the arguments first, then the block sizes
    numbers = {name: int(text) for name, text in zip(names, call, strict=False) if _is_number(text)}
    last = enumerate(call[-3:])  # the grid itself, for a user's kernel
    numbers.update({f"_grid_{axis}": int(text) for axis, text in last if _is_number(text)})
    grid = compiling_modules().heuristics.GridExpr.from_meta(autotuner.inductor_meta, config)
    try:
        x, y, z = grid.eval_slow({**numbers, **config.kwargs})
    except NameError:  # a data-dependent size
        return None
    return int(x), int(y), int(z)


def _is_number(text: str) -> bool:
    return text.removeprefix("-").isdigit()


def _spill_bytes(compiled: Any) -> int:
    """Return the bytes that a thread spills, in the kernel and its functions, from the assembler's log; a
    frame holds other data too.

    Triton assembles the kernel once more, with the same tool and options, to get the log.
    """
    from triton import knobs  # optional dependency
    from triton.backends.nvidia.compiler import CUDABackend

    target, log = compiled.metadata.target, io.StringIO()
    with knobs.nvidia.scope(), contextlib.redirect_stdout(log):
        knobs.nvidia.dump_ptxas_log = True
        CUDABackend(target).make_cubin(compiled.asm["ptx"], {}, compiled.metadata, target.arch)
    return sum(int(size) for match in _SPILLS.findall(log.getvalue()) for size in match)
