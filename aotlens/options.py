"""Compile options.  Stdlib only, so that front ends can name options without torch."""

from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum
from typing import Any

from aotlens.model.languages import KERNEL_LANGUAGES
from aotlens.policy import Policy


class SideEffects(Enum):
    """How side effects are handled: by a compilation for many calls, for single calls, or in an exported
    graph."""

    REPLAYED = "replayed"
    """Each call repeats them; side effects that cannot be repeated are rejected."""
    FOR_ONE_CALL = "for one call"
    """As above, but one that cannot be repeated makes the compilation valid for its own call only."""
    TRACED = "traced"
    """They happen during tracing; side effects that leak tensors of the recording are rejected."""


Backend = Callable[[Any, list[Any]], Callable[..., Any]]
"""Takes a `GraphModule` and example inputs, returns a callable over flat inputs."""

PartitionFunction = Callable[..., tuple[Any, Any]]
"""Takes a joint `GraphModule`, its example inputs, and `num_fwd_outputs`; returns forward and backward."""

BACKENDS = ("inductor", "eager")

KERNEL_LIMIT_S = 120.0
"""The default time limit for Triton on one kernel."""


@dataclass(frozen=True, slots=True)
class Compilers:
    """A backend in three parts, each called as in `functorch.compile`."""

    forward: Backend
    backward: Backend
    inference: Backend


@dataclass(frozen=True, slots=True)
class Interpreted:
    """A backend that generates kernels for the GPU of the options, and runs them in Triton's interpreter."""

    own_blocks: bool = False
    """Keep the block sizes of the kernels on the GPU: slower."""


@dataclass(frozen=True, slots=True)
class CompileOptions:
    """The options of one compilation."""

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
    """Settings that the user passed as `torch.compile(options=...)`."""
    keep_input_mutations: bool = True
    """Keep a mutation inside the graph where autograd need not see it."""
    decompositions: dict[Any, Callable[..., Any]] | None = None
    """Operator decompositions; None uses the backend's."""
    side_effects: SideEffects = SideEffects.REPLAYED
    """How side effects of the function are handled (a list that it fills)."""
    flat_result: bool = False
    """Return a tuple of the result's leaves instead of the user's containers."""
    functional_random: bool = False
    """Make random operators on devices with a counter-based generator functions of a seed and an offset, like
    torch's `functionalize_rng_ops`, which has the same effect."""
    gpu: str | None = None
    """Also generate kernels for this GPU (`h100`, `sm_90`), which need not be present; they do not run."""
    gpu_texts: tuple[str, ...] = KERNEL_LANGUAGES
    """The languages in which the report shows each of these kernels, in addition to Triton's."""
    kernel_limit_s: float = KERNEL_LIMIT_S
    """Time limit for Triton on one of them."""
    lazy_backward: bool = True
    """Generate the backward's code at the first backward, so that an unused one costs nothing."""
    standalone: bool = False
    """Write a self-contained module text, including compiled graphs, as `export` needs it; free variables are
    copied."""
    cache: bool = False
    """Cache the result on disk, and reuse a cached one: see `aotlens.compile_cache`."""

    strict: bool = True
    """Raise where the engine cannot compile a Dynamo graph.  Otherwise, as in `aotlens run` and
    `backend="aotlens"`, the graph runs in eager as Dynamo captured it, and the session or the log says
    why."""

    def __post_init__(self) -> None:
        """Parse the policy's text once, so that an error in it is raised before anything is captured."""
        if isinstance(self.policy, str):
            object.__setattr__(self, "policy", Policy.parse(self.policy))

    @property
    def for_inductor(self) -> bool:
        """Whether the graphs go to Inductor, for this machine or for a GPU target."""
        return self.backend == "inductor" or self.gpu is not None

    @property
    def partition(self) -> Policy | PartitionFunction:
        """The parsed policy."""
        assert not isinstance(self.policy, str)  # parsed in __post_init__
        return self.policy
