"""The records of code generation: one program's code, and that of a whole target."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aotlens.codegen.standalone_code import StandaloneGraph
from aotlens.ir.program import Program
from aotlens.model.report import Kernel


@dataclass(frozen=True, slots=True)
class GraphCode:
    """The code of one program, as the module text calls it."""

    program: Program
    compile: Callable[[], Callable[[list[Any]], Any]] | None
    """Returns a callable over one list of flat inputs; None when the program runs as its own text."""
    compile_variant: Callable[[Program], Callable[[list[Any]], Any]] | None = None
    """Compiles another program with the same inputs; None when programs run as their own text."""
    lazy: bool = False
    """Whether `compile` runs at the first call."""
    kernels: Callable[[], tuple[Kernel, ...]] = tuple
    """Returns the kernels generated so far."""
    measure: Callable[[], str] = str
    """Times each generated call, which `kernels` reports from then on; returns how it was done, or why
    not."""
    gpu_kernels: Callable[[], tuple[Kernel, ...]] = tuple
    """Returns the kernels for the GPU target, which are generated on demand."""
    serialize: Callable[[], Any] | None = None
    """Returns a `SerializedCode`; None where the backend's code cannot leave this process."""
    donated: tuple[int, ...] = ()
    """Positions of the inputs that the code may overwrite."""
    standalone: StandaloneGraph | None = None
    """The code as text for the module, in place of the program's own text."""

    @property
    def boxed(self) -> bool:
        """Whether the code takes one list, which it may empty: backends' code, and every backward."""
        return self.compile is not None or self.standalone is not None or self.program.name == "backward"


@dataclass(frozen=True, slots=True)
class Generated:
    """The code of one target."""

    forward: GraphCode
    backward: GraphCode | None
    """None in inference."""
    gpu_assumptions: Callable[[], tuple[str, ...]] = tuple
    """Returns the assumptions made when the programs were retargeted to the GPU."""
    gpu: str | None = None
    """The architecture of the GPU target: `sm_90`; None without one."""
    gpu_name: str = ""
    """The vendor's name of the GPU target; empty without one."""
    gpu_error: Callable[[], str] = str
    """Returns why there is no code for the GPU target; empty where there is, and without a target."""
    is_standalone: bool = False
    """Whether the module text must not depend on aotlens."""
    interpreted: Any = None
    """The `InterpretedGraphs` that run; None with every other backend."""
