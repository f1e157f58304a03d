"""Targets whose compiled code generates random numbers of its own, which no comparison with eager can expect.

Inductor's kernels replace torch's generator, so that every value that depends on a random number differs from
eager's.  Such a target is compiled a second time with eager's random numbers, and that code is compared: it
differs from the code that runs in the random numbers alone.
"""

from dataclasses import replace

from aotlens.options import CompileOptions
from aotlens.torch_api.inductor.compile import inductor_generates_random
from aotlens.verify.compare import Verification

__all__ = ["NOT_COMPARED", "depends_on_own_numbers", "with_eager_numbers"]

NOT_COMPARED = (
    "compared with eager's random numbers: the kernels generate others, which themselves were not compared"
)


def depends_on_own_numbers(verification: Verification, options: CompileOptions) -> bool:
    """Return True if random numbers that kernels generate can be the cause of a difference."""
    if not verification.uses_random or not verification.differences or options.backend != "inductor":
        return False
    return inductor_generates_random(dict(options.inductor_config))


def with_eager_numbers(options: CompileOptions) -> CompileOptions:
    """Return the options of the second compilation, which no cache stores."""
    config = (*options.inductor_config, ("fallback_random", True))
    return replace(options, inductor_config=config, cache=False)
