"""What a result depends on besides graph and inputs: modes, options, settings, versions, the machine."""

import platform
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import torch

from aotlens.capture.modes import Modes, current_modes, set_modes
from aotlens.capture.provenance.frames import is_installed_file
from aotlens.codegen.gpu.fingerprint import torch_settings
from aotlens.disk_cache import digest
from aotlens.ir.fingerprint import NoFingerprintError, fingerprint_text
from aotlens.options import BACKENDS, CompileOptions
from aotlens.policy import Policy
from aotlens.torch_api.fake.gpu import emulates_gpu
from aotlens.torch_api.inductor.compile import inductor_settings, third_party_inductor_rules
from aotlens.torch_api.rng import functionalizes_rng
from aotlens.torch_api.saved_tensor_hooks import graph_module_hooks, has_saved_tensor_hooks

__all__ = ["CallModes", "environment_lines", "option_lines"]


@dataclass(frozen=True, slots=True)
class CallModes:
    """The thread's modes on which a compilation depends."""

    modes: Modes
    grad_enabled: bool
    inference: bool

    @classmethod
    def now(cls) -> "CallModes":
        return cls(current_modes(), torch.is_grad_enabled(), torch.is_inference_mode_enabled())

    @contextmanager
    def restored(self) -> Iterator[None]:
        """Within the context, the thread has these modes; afterwards, its previous ones."""
        with ExitStack() as stack:
            stack.enter_context(torch.inference_mode(self.inference))
            stack.enter_context(torch.set_grad_enabled(self.grad_enabled))
            stack.callback(set_modes, current_modes())
            set_modes(self.modes)
            yield


def option_lines(options: CompileOptions) -> Iterator[str]:
    """Yield the options as text; raises NoFingerprintError for options that are Python code."""
    if options.backend not in BACKENDS:
        raise NoFingerprintError("a backend that has no name")
    policy = options.partition
    if not isinstance(policy, Policy) or policy.function is not None or policy.chooser is not None:
        raise NoFingerprintError("a policy that is a function")
    if policy.overrides:
        raise NoFingerprintError("a policy that names values")
    if options.decompositions is not None:
        raise NoFingerprintError("decompositions of your own")
    if options.gpu is not None or emulates_gpu():
        raise NoFingerprintError("a GPU that is not there")
    if options.standalone:
        raise NoFingerprintError("a standalone module text")
    if options.observe_variables:
        raise NoFingerprintError("variables that are recorded")
    flags = (
        options.dynamic,
        options.keep_input_mutations,
        options.side_effects,
        options.flat_result,
        options.functional_random,
        options.lazy_backward,
    )
    yield f"{options.backend} {policy} {flags}"
    if options.for_inductor:
        yield from _third_party_rules()
        settings = {**inductor_settings(), **dict(options.inductor_config)}
        # on a CPU, the setting of `mode="reduce-overhead"` has no effect
        if settings.get("triton.cudagraphs") and torch.cuda.is_available():
            raise NoFingerprintError("CUDA graphs")
        yield fingerprint_text(dict(sorted(settings.items())), _reject_function)
        yield _processor()
        yield str(torch.get_num_threads())


def _third_party_rules() -> Iterator[str]:
    """Yield lowering rules that libraries registered with Inductor (torchao does on import), by their files.

    Raises:
        NoFingerprintError: a rule of the user's own, whose code may depend on what the program holds.
    """
    for operator, file in third_party_inductor_rules():
        if file is None or not is_installed_file(file):
            raise NoFingerprintError(f"a rule of your own for Inductor (`{operator}`)")
        yield f"{operator} {_digest_of_file(file)}"


@cache
def _digest_of_file(file: str) -> str:
    return digest(Path(file).read_bytes())


def _reject_function(value: Any) -> str | None:
    """Reject a setting that is a function, whose text does not say what it does; leave others to
    `fingerprint_text`."""
    if callable(value):
        name = getattr(value, "__qualname__", type(value).__qualname__)
        raise NoFingerprintError(f"a setting of Inductor's that is a function (`{name}`)")
    return None


def environment_lines() -> Iterator[str]:
    """Yield modes of the call, settings of torch, and versions.

    Raises:
        NoFingerprintError: hooks on saved tensors that are graph modules, which become parts of the graphs.
    """
    if graph_module_hooks() is not None:
        raise NoFingerprintError("hooks on saved tensors that are graph modules")
    yield f"under hooks on saved tensors: {has_saved_tensor_hooks()}"  # of a checkpoint
    modes = (torch.is_grad_enabled(), torch.is_inference_mode_enabled(), functionalizes_rng())
    yield f"{current_modes()} {modes} {torch.is_autocast_cache_enabled()}"
    yield fingerprint_text([*torch_settings(), *_attention(), *_other_settings()], _reject_function)
    yield "\n".join(_versions())


def _attention() -> tuple[Any, ...]:
    """Return which attention implementations are enabled, and whether oneDNN is."""
    backends = torch.backends.cuda
    return (
        backends.flash_sdp_enabled(),
        backends.mem_efficient_sdp_enabled(),
        backends.math_sdp_enabled(),
        backends.cudnn_sdp_enabled(),
        torch.backends.mkldnn.enabled,
    )


def _other_settings() -> tuple[Any, ...]:
    deterministic: Any = torch.utils.deterministic
    return (
        torch.get_default_device(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        deterministic.fill_uninitialized_memory,
        torch.cuda.is_available(),
    )


@cache
def _versions() -> tuple[str, ...]:
    """Return the versions of Python, torch, and this package by its files, so that changes invalidate
    entries."""
    package = Path(__file__).parents[1]
    files = sorted(package.rglob("*.py"))
    own = [f"{file.relative_to(package)} {file.stat().st_size} {file.stat().st_mtime_ns}" for file in files]
    return sys.version, torch.__version__, str(torch.version.git_version), digest(*own)


@cache
def _processor() -> str:
    """Return a digest of the CPU features that the C++ compiler may use."""
    facts = [platform.machine(), platform.processor(), torch.backends.cpu.get_cpu_capability()]
    try:
        with open("/proc/cpuinfo", encoding="utf-8") as about:
            rows = [line for line in iter(about.readline, "\n") if line.startswith(("model name", "flags"))]
    except OSError:  # not Linux
        rows = []
    return digest(*facts, *rows)
