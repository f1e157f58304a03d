"""Hidden outputs that results are views of, as the caller's autograd should find them.

Invariant: no value changes here; what is copied stands at its place already.
"""

from collections.abc import Callable

from aotlens.analysis.records import BaseInfo, Memory
from aotlens.runtime.builder import TextBuilder


def write_result_bases(
    builder: TextBuilder, bases: tuple[BaseInfo, ...], look: Callable[[Memory], str]
) -> None:
    """The lines; `look` is the text of a look at some memory, without history."""
    for at, base in enumerate(bases):
        if base.cut_off:
            builder.add(f"base_{at} = base_{at}.detach().requires_grad_()")
        if base.memory is None:
            continue
        if base.memory.is_given:
            builder.add(f"base_{at}.data = {look(base.memory)}")
            continue
        builder.add(f"memory = {look(base.memory)}")
        preserving = "torch.autograd._unsafe_preserve_version_counter(memory)"
        with builder.block(f"with torch.enable_grad(), {preserving}:"):
            builder.add(f"base_{at} = memory.copy_(base_{at})")
