"""RNG state and generators, on CPU and GPU."""

from contextlib import AbstractContextManager, nullcontext
from typing import Any

from aotlens.torch_api.patches.scopes import Current, Replace, handled

__all__ = [
    "device_rng_state",
    "functionalizes_rng",
    "generator_class",
    "rng_state",
    "without_functional_rng",
]


def rng_state(original: Any, current: Current) -> Any:
    """The generator that `torch.manual_seed` and `torch.get_rng_state` use: `handler.rng_state`."""

    class GeneratorOfThread:
        def __getattr__(self, name: str) -> Any:
            handler = current()
            return getattr(original if handler is None else handler.rng_state, name)

    return GeneratorOfThread()


def device_rng_state(name: str) -> Replace:
    """A function of `torch.cuda` on the RNG state: that method of `handler.rng_state`."""

    @handled
    def call(handler: Any, original: Any, *args: Any, **kwargs: Any) -> Any:
        return getattr(handler.rng_state, name)(*args, **kwargs)

    return call


def generator_class(original: Any, current: Current) -> Any:
    """`torch.Generator`, which `handler.rng_state` rejects."""

    class Kind(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            handler = current()
            if handler is not None:
                handler.rng_state.reject_new_generator()
            return original(*args, **kwargs)

        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

        def __getattr__(cls, name: str) -> Any:
            return getattr(original, name)

    return Kind("Generator", (), {})


def functionalizes_rng() -> bool:
    """Return True if torch's setting makes random numbers functional."""
    from torch._functorch import config

    return bool(config.functionalize_rng_ops)


def without_functional_rng() -> AbstractContextManager[Any]:
    """Within it, torch's gradients of higher-order operators do not count random numbers themselves."""
    from torch._functorch import config

    return config.patch(functionalize_rng_ops=False) if config.functionalize_rng_ops else nullcontext()
