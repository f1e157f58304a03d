"""Inductor as a backend of graphs that went through the AOT stage."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from torch._subclasses.fake_tensor import FakeTensorMode

from aotlens.torch_api.dispatch import without_autocast


def inductor_decompositions() -> dict[Any, Callable[..., Any]]:
    """The decompositions that Inductor's lowerings expect."""
    import torch._inductor.lowering  # noqa: F401 (some decompositions look for it without importing it)
    from torch._inductor.decomposition import select_decomp_table  # 3 s to import: only for this backend

    return dict(select_decomp_table())


def inductor_config_patch(config: dict[str, Any]) -> Any:
    """A context in which Inductor is configured as the user asked; a wrong name raises AttributeError."""
    from torch._inductor import config as inductor_config

    asked = {key.replace("-", "_"): value for key, value in config.items()}
    return inductor_config.patch({"trace.provenance_tracking_level": 2, **asked})


@contextmanager
def _accepting_constants(fake_mode: FakeTensorMode) -> Iterator[None]:
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
    from torch._inductor.debug import create_kernel_information_json
    from torch._inductor.fx_passes.replace_random import replace_random_passes
    from torch._inductor.virtualized import V

    if not inductor_config.fallback_random:
        replace_random_passes(module)
    before = create_kernel_information_json()
    with without_autocast(), V.set_fake_mode(fake_mode), _accepting_constants(fake_mode):
        code = compile_fx_inner(module, inputs, **flags)
    after = create_kernel_information_json()
    return code, {key: nodes for key, nodes in after.items() if key not in before}
