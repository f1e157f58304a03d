"""What code generation gives for one program."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aotlens.codegen.standalone_code import StandaloneGraph
from aotlens.ir.program import Program
from aotlens.model.report import Kernel


@dataclass(frozen=True, slots=True)
class GraphCode:
    """One program, ready to be called by the module text."""

    program: Program
    compile: Callable[[], Callable[[list[Any]], Any]] | None
    """Makes a callable that takes one list of flat inputs; None when the program's own text runs."""
    compile_variant: Callable[[Program], Callable[[list[Any]], Any]] | None = None
    """Makes the same of another program with the same inputs; None when a program's own text runs."""
    lazy: bool = False
    """Whether `compile` waits for the first call."""
    kernels: Callable[[], tuple[Kernel, ...]] = tuple
    """What was generated so far."""
    measure: Callable[[], str] = str
    """Times each call of what was generated, which `kernels` tells from then on; says how, or why not."""
    gpu_kernels: Callable[[], tuple[Kernel, ...]] = tuple
    """What the program becomes on the GPU target; generated when somebody asks."""
    serialize: Callable[[], Any] | None = None
    """Gives what was compiled as a `SerializedCode`; None where the backend's code stays in this process."""
    donated: tuple[int, ...] = ()
    """Positions of the inputs whose memory the code may write over."""
    standalone: StandaloneGraph | None = None
    """The code as text, which stands in the module in place of the program's own."""

    @property
    def boxed(self) -> bool:
        """Whether it takes one list, which it may empty: what a backend made, and every backward."""
        return self.compile is not None or self.standalone is not None or self.program.name == "backward"


@dataclass(frozen=True, slots=True)
class Generated:
    forward: GraphCode
    backward: GraphCode | None
    """None in inference."""
    gpu_assumptions: Callable[[], tuple[str, ...]] = tuple
    """What was assumed when the programs were moved to the GPU target."""
    gpu: str | None = None
    """The GPU that kernels are told for: `sm_90`; None without one."""
    gpu_name: str = ""
    """The GPU that was asked for, by its vendor's name; empty without one."""
    gpu_error: Callable[[], str] = str
    """Why there is no code for the GPU target; empty where there is, and without one."""
    is_standalone: bool = False
    """Whether the module text must make everything by itself."""
    interpreted: Any = None
    """The `InterpretedGraphs` that run; None with every other backend."""
