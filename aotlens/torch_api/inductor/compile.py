"""Inductor: its settings, its passes, and its code for one graph."""

import inspect
import json
import sys
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch
from torch._guards import TracingContext, tracing
from torch._subclasses.fake_tensor import FakeTensorMode

from aotlens.torch_api.fake.gpu import CPU, emulates_gpu
from aotlens.torch_api.modes import without_autocast
from aotlens.torch_api.patches.compilers import INDUCTOR, INDUCTOR_GPU
from aotlens.torch_api.patches.scopes import patched
from aotlens.torch_api.patches.table import COMPILE
from aotlens.torch_api.triton import default_triton_target

__all__ = [
    "CPU_KERNEL_SETTINGS",
    "GPU_KERNEL_SETTINGS",
    "PARTIAL_SOURCE_SETTINGS",
    "compile_with_inductor",
    "cudagraph_flags",
    "filter_autotune_choices",
    "inductor_config_patch",
    "inductor_decompositions",
    "inductor_generates_random",
    "inductor_settings",
    "kernel_settings",
    "register_inductor_operators",
    "run_joint_passes",
    "third_party_inductor_rules",
    "vector_bits",
    "with_eager_random_numbers",
]


def register_inductor_operators() -> None:
    """Register the operators (`prims`) that Inductor puts into graphs."""
    import torch._inductor.inductor_prims  # noqa: F401 (the import registers them)


def inductor_decompositions() -> dict[Any, Callable[..., Any]]:
    """Return the decompositions that Inductor's lowerings expect."""
    import torch._inductor.lowering  # noqa: F401 (some decompositions look for it without importing it)
    from torch._inductor.decomposition import select_decomp_table  # 3 s to import: only for this backend

    return dict(select_decomp_table())


def inductor_config_patch(config: dict[str, Any]) -> Any:
    """Return a context with the user's Inductor settings; a wrong name raises AttributeError."""
    from torch._inductor import config as inductor_config

    settings = {key.replace("-", "_"): value for key, value in config.items()}
    return inductor_config.patch({"trace.provenance_tracking_level": 2, **settings})


@contextmanager
def _allow_real_constants(fake_mode: FakeTensorMode) -> Iterator[None]:
    """Let the graph's real constants meet fake tensors, which Dynamo's mode forbids."""
    before, fake_mode.allow_non_fake_inputs = fake_mode.allow_non_fake_inputs, True
    try:
        yield
    finally:
        fake_mode.allow_non_fake_inputs = before


def compile_with_inductor(
    module: Any, inputs: list[Any], fake_mode: FakeTensorMode, **flags: Any
) -> tuple[Any, dict[str, Any]]:
    """Inductor's code for one graph after the AOT stage, and which nodes went into which kernel.

    The code is a boxed callable with `source_code`; the second result is by `kernel:call number`.
    """
    from torch._inductor import config as inductor_config
    from torch._inductor.compile_fx import compile_fx_inner
    from torch._inductor.debug import create_kernel_information_json, reset_provenance_globals
    from torch._inductor.fx_passes.replace_random import replace_random_passes
    from torch._inductor.virtualized import V

    on_gpu = any(isinstance(value, torch.Tensor) and value.device.type == "cuda" for value in inputs)
    with (
        default_triton_target() if emulates_gpu() else nullcontext(),
        without_autocast(),
        V.set_fake_mode(fake_mode),
        _allow_real_constants(fake_mode),
        patched(COMPILE),
        patched(INDUCTOR),
        patched(INDUCTOR_GPU, []) if on_gpu else nullcontext(),
        reset_provenance_globals(),
    ):
        if not inductor_config.fallback_random:  # not among the joint passes: see `run_joint_passes`
            for inner in module.modules():  # also subgraphs of higher-order operators
                if isinstance(inner, torch.fx.GraphModule):
                    replace_random_passes(inner)
        code = compile_fx_inner(module, inputs, **flags)
        calls = create_kernel_information_json()
    return code, calls or _cached_kernel_nodes(code)


def _cached_kernel_nodes(code: Any) -> dict[str, Any]:
    """Return which nodes went into which kernel, for code from Inductor's own cache."""
    mapping = json.loads(getattr(code, "inductor_provenance_mapping_str", None) or "{}")
    return {call: {"post_grad_nodes": nodes} for call, nodes in mapping.get("cppCodeToPost", {}).items()}


def vector_bits() -> int:
    """Width of the vectors that Inductor's C++ kernels use on this machine's CPU."""
    from torch._inductor.cpu_vec_isa import pick_vec_isa

    return int(pick_vec_isa().bit_width())


CPU_KERNEL_SETTINGS = (
    "cpp.enable_floating_point_contract_flag",
    "cpp.enable_unsafe_math_opt_flag",
    "cpp.march",
    "cpp.simdlen",
)
"""What Inductor reads when it has a C++ kernel compiled, and a kernel's numbers or vectors depend on."""


PARTIAL_SOURCE_SETTINGS = ("cpp_wrapper", "fx_wrapper")
"""Settings under which part of Inductor's code is not in its Python text."""


GPU_KERNEL_SETTINGS = ("emulate_precision_casts", "eager_numerics.use_pytorch_libdevice")
"""The same of a Triton kernel; torch reads them in processes of its own, where no text can set them."""


def kernel_settings(names: tuple[str, ...]) -> dict[str, Any]:
    """Return the current values of those settings that this torch has."""
    from torch._inductor import config

    every = config.get_config_copy()
    return {name: every[name] for name in names if name in every}


def run_joint_passes(module: Any, fake_mode: FakeTensorMode, config: dict[str, Any]) -> None:
    """Let Inductor's passes change a joint graph, as `torch.compile` does before the partition.

    Random operators stay: they are rewritten in each of the two graphs.
    """
    from torch._inductor import config as inductor_config
    from torch._inductor.fx_passes.joint_graph import joint_graph_passes
    from torch._inductor.virtualized import V

    values = [node.meta.get("val") for node in module.graph.nodes]
    # torch traces the patterns that it looks for on this device, once per process
    pattern_device = next((value.device for value in values if isinstance(value, torch.Tensor)), None)
    with (
        inductor_config_patch(config),
        inductor_config.patch(fallback_random=True, **_settings_without_benchmarks()),
    ):
        if inductor_config.use_joint_graph_passes:
            with (
                patched(COMPILE),
                without_autocast(),
                V.set_fake_mode(fake_mode),
                _allow_real_constants(fake_mode),
                tracing(TracingContext(fake_mode)),
                _creation_ops_on_cpu(module) if emulates_gpu() else nullcontext(),
            ):
                joint_graph_passes(module, pattern_device)


def _settings_without_benchmarks() -> dict[str, Any]:
    """Return settings without which a pass would time operators on a GPU that is absent."""
    return {"shape_padding": False} if emulates_gpu() else {}


@contextmanager
def _creation_ops_on_cpu(module: Any) -> Iterator[None]:
    """Within the block, nodes create tensors on the CPU: constant folding runs them, and the GPU is
    absent."""
    _set_devices(module, "cuda", CPU)
    try:
        yield
    finally:
        _set_devices(module, "cpu", torch.device("cuda", 0))


def _set_devices(module: Any, before: str, after: torch.device) -> None:
    for node in module.graph.nodes:
        device, value = node.kwargs.get("device"), node.meta.get("val")
        on_gpu = isinstance(value, torch.Tensor) and value.device.type == "cuda"
        if on_gpu and device is not None and device.type == before:
            node.kwargs = {**node.kwargs, "device": after}


def cudagraph_flags() -> dict[str, Any]:
    """Return what Inductor's forward and backward of one target share, so that both are captured or
    neither."""
    from torch._inductor import config as inductor_config
    from torch._inductor.cudagraph_utils import BoxedDeviceIndex
    from torch._inductor.utils import BoxedBool

    return {
        "cudagraphs": BoxedBool(inductor_config.triton.cudagraphs),
        "boxed_forward_device_index": BoxedDeviceIndex(None),
    }


@contextmanager
def filter_autotune_choices(take: Callable[[list[Any]], list[Any]]) -> Iterator[None]:
    """Within the block, `take` selects the choices of a kernel that Inductor times."""
    from torch._inductor.select_algorithm import add_preprocessing_fn, get_algorithm_selector_cache

    known = get_algorithm_selector_cache().preprocessing_fns
    add_preprocessing_fn(take)
    try:
        yield
    finally:
        known.remove(take)


def third_party_inductor_rules() -> list[tuple[str, str | None]]:
    """Return operators whose Inductor decomposition or lowering is not torch's, each with its file.

    The file is None where no file defines the rule.
    """
    others = []
    for module, table in (("decomposition", "decompositions"), ("lowering", "lowerings")):
        loaded = sys.modules.get(f"torch._inductor.{module}")  # where nobody loaded it, nobody added to it
        rules: dict[Any, Any] = getattr(loaded, table, {})
        others += [(str(op), _file_of(rule)) for op, rule in rules.items() if not _is_of_torch(rule)]
    return others


def _file_of(rule: Any) -> str | None:
    code = getattr(inspect.unwrap(getattr(rule, "func", rule)), "__code__", None)
    return None if code is None else str(code.co_filename)


def _is_of_torch(rule: Any) -> bool:
    name = getattr(inspect.unwrap(getattr(rule, "func", rule)), "__module__", None)
    return name is None or name.split(".")[0] in ("torch", "functools")


def inductor_settings() -> dict[str, Any]:
    """Return every Inductor setting that affects its code, by name, with the user's passes."""
    from torch._inductor import config

    settings: dict[str, Any] = config.save_config_portable(ignore_private_configs=False)
    names = ("pre_grad", "joint", "post_grad")
    passes = [name for name in dir(config) if "custom" in name and name.startswith(names)]
    return settings | {name: getattr(config, name) for name in passes}


def with_eager_random_numbers() -> AbstractContextManager[Any]:
    """Within it, code that Inductor compiles has the random numbers that eager has."""
    from torch._inductor import config

    return config.patch(fallback_random=True)


def inductor_generates_random(config: dict[str, Any]) -> bool:
    """Return True if Inductor, configured so, generates random numbers in its kernels and not through
    torch."""
    from torch._inductor import config as inductor_config

    with inductor_config_patch(config):
        return not inductor_config.fallback_random
