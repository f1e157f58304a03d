"""RNG state and generators, on CPU and GPU."""

import threading
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

from aotlens.torch_api.inductor import inductor_config_patch

__all__ = [
    "functionalizes_rng",
    "inductor_generates_random",
    "notify_new_generators",
    "redirect_device_rng_state",
    "redirect_rng_state",
    "with_eager_random_numbers",
    "without_functional_rng",
]


@contextmanager
def redirect_rng_state(state: Any) -> Iterator[None]:
    """Within it, this thread's `torch.manual_seed`, `torch.get_rng_state` and their like speak to `state`."""
    owner, real = threading.get_ident(), torch.default_generator

    class OfThisThread:
        def __getattr__(self, name: str) -> Any:
            return getattr(state if threading.get_ident() == owner else real, name)

    module: Any = torch.random
    module.default_generator = OfThisThread()
    try:
        yield
    finally:
        module.default_generator = real


@contextmanager
def notify_new_generators(note: Callable[[torch.Generator], None]) -> Iterator[None]:
    """Within it, each `torch.Generator()` that this thread makes is told of."""
    owner, real = threading.get_ident(), torch.Generator
    module: Any = torch

    class Kind(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            made = real(*args, **kwargs)
            if threading.get_ident() == owner:
                made = made.clone_state()  # which operators are given as this very object
                note(made)
            return made

        def __instancecheck__(cls, one: Any) -> bool:
            return isinstance(one, real)

        def __getattr__(cls, name: str) -> Any:
            return getattr(real, name)

    module.Generator = Kind("Generator", (), {})
    try:
        yield
    finally:
        module.Generator = real


@contextmanager
def redirect_device_rng_state(state: Any) -> Iterator[None]:
    """Within it, this thread's `torch.cuda.manual_seed`, `torch.cuda.get_rng_state` and their like speak to
    `state`."""
    owner = threading.get_ident()
    instead = {
        "get_rng_state": state.get_device_state,
        "set_rng_state": state.set_device_state,
        "manual_seed": state.seed_devices,
        "manual_seed_all": state.seed_devices,
    }
    real = {name: getattr(torch.cuda, name) for name in instead}

    def of_this_thread(name: str) -> Callable[..., Any]:
        def call(*args: Any, **kwargs: Any) -> Any:
            chosen = instead if threading.get_ident() == owner else real
            return chosen[name](*args, **kwargs)

        return call

    for name in instead:
        setattr(torch.cuda, name, of_this_thread(name))
    try:
        yield
    finally:
        for name, function in real.items():
            setattr(torch.cuda, name, function)


@contextmanager
def with_eager_random_numbers() -> Iterator[None]:
    """Within the block, code that Inductor compiles has the random numbers that eager has."""
    from torch._inductor import config

    with config.patch(fallback_random=True):
        yield


def functionalizes_rng() -> bool:
    """Whether torch is told to make random numbers functional."""
    from torch._functorch import config

    return bool(config.functionalize_rng_ops)


def without_functional_rng() -> AbstractContextManager[Any]:
    """Within it, torch's gradients of higher-order operators count no draws by themselves."""
    from torch._functorch import config

    return config.patch(functionalize_rng_ops=False) if config.functionalize_rng_ops else nullcontext()


def inductor_generates_random(config: dict[str, Any]) -> bool:
    """Whether Inductor, configured so, draws random numbers in its own kernels instead of calling torch."""
    from torch._inductor import config as inductor_config

    with inductor_config_patch(config):
        return not inductor_config.fallback_random
