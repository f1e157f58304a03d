"""How a target is compiled.  Stdlib only, so that front ends can name options without torch."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aotlens.model.kernels import KERNEL_LANGUAGES
from aotlens.policy import Policy


class SideEffects(Enum):
    """By what was asked for: one compilation for many calls, for calls as they come, or a graph."""

    REPLAYED = "replayed"
    """Each call does it again; what it could not is refused."""
    FOR_ONE_CALL = "for one call"
    """As above, but what could not be done again makes the compilation serve the call that it is made for."""
    TRACED = "traced"
    """It happens while the function is traced; what leaves tensors of the recording behind is refused."""


Backend = Callable[[Any, list[Any]], Callable[..., Any]]
"""Takes a `GraphModule` and example inputs, gives a callable over flat inputs."""

PartitionFunction = Callable[..., tuple[Any, Any]]
"""Takes a joint `GraphModule`, its example inputs, and `num_fwd_outputs`; gives forward and backward."""

BACKENDS = ("inductor", "eager")

KERNEL_LIMIT_S = 120.0
"""How long Triton may take for one kernel, where nobody says otherwise."""


@dataclass(frozen=True, slots=True)
class Compilers:
    """A backend in three parts, each called as `functorch.compile` calls it."""

    forward: Backend
    backward: Backend
    inference: Backend


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A backend that generates kernels for the GPU of the options, and runs them in Triton's interpreter."""

    own_blocks: bool = False
    """Keep the block sizes that the kernels have on the GPU: slower."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """What one compilation is asked to do."""

    backend: str | Backend | Compilers | Interpreted = "inductor"
    """`inductor`, `eager` (the graphs' own Python text), any `Backend`, three of them, or the interpreter."""
    dynamic: bool = False
    """Trace with symbolic sizes."""
    policy: str | Policy | PartitionFunction = "min-cut"
    """Which values are saved: a policy, its text form (`min-cut`, `budget=0.5,save:hidden`), or a function
    over the whole joint graph."""
    observe_variables: bool = False
    """Record the tensors that local variables are bound to; slows tracing."""
    inductor_config: tuple[tuple[str, object], ...] = ()
    """What the user gave as `torch.compile(options=...)`."""
    keep_input_mutations: bool = True
    """Let a mutation that autograd need not see stay inside the graph."""
    decompositions: dict[Any, Callable[..., Any]] | None = None
    """Operator decompositions; None takes what the backend asks for."""
    side_effects: SideEffects = SideEffects.REPLAYED
    """What becomes of what the function does besides its result (a list that it fills)."""
    flat_result: bool = False
    """Return a tuple of the result's leaves instead of the user's containers."""
    functional_random: bool = False
    """Make random operators of devices with a counter-based generator functions of a seed and an offset, as
    torch's `functionalize_rng_ops` does; that setting has the same effect."""
    gpu: str | None = None
    """Also generate kernels for this GPU (`h100`, `sm_90`), which need not be there; they do not run."""
    gpu_texts: tuple[str, ...] = KERNEL_LANGUAGES
    """The languages in which the report shows each of these kernels, beside Triton's."""
    kernel_limit_s: float = KERNEL_LIMIT_S
    """How long Triton may take for one of them."""
    lazy_backward: bool = True
    """Generate the backward's code at the first backward, so that one that never runs costs nothing."""
    standalone: bool = False
    """Write a module text that makes by itself all that it names, compiled graphs too, as `export` needs it;
    what the function reaches outside of its arguments is copied."""
    cache: bool = False
    """Keep the result on disk, and take it from there where it is: `aotlens.compile_cache` says for what."""

    strict: bool = True
    """Raise where the engine cannot compile a graph of Dynamo's.  Otherwise the graph runs in eager, as
    Dynamo captured it, and the session or the log says why; so do `aotlens run` and `backend="aotlens"`."""

    def __post_init__(self) -> None:
        """A policy's text is read once, here, so that a mistake in it shows before anything is captured."""
        if isinstance(self.policy, str):
            object.__setattr__(self, "policy", Policy.parse(self.policy))

    @property
    def for_inductor(self) -> bool:
        """Whether the graphs go to Inductor, for the machine or for a GPU that is not there."""
        return self.backend == "inductor" or self.gpu is not None

    @property
    def partition(self) -> Policy | PartitionFunction:
        """The policy, read."""
        assert not isinstance(self.policy, str)  # by __post_init__
        return self.policy
