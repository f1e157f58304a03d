"""Which backward runs where a gradient that does not arrive is more than zeros to it.

Invariant: a custom function or a hook that takes such a gradient sees what it sees in eager; where the
backward of the gradients that are there cannot be recorded, the call is refused by the name of what is on
the way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aotlens.errors import AotlensError
from aotlens.ir.program import has_effect
from aotlens.ir.slots import GRADIENTS, SavedInput, Tangent
from aotlens.joint.arrivals import Teller
from aotlens.joint.some import Arrived, gradients_of_some
from aotlens.partition.higher import derivative_program, recorded_nodes
from aotlens.partition.records import Partitioned
from aotlens.runtime.builder import TextBuilder
from aotlens.runtime.double import why_not
from aotlens.runtime.graphs import load_program
from aotlens.runtime.subclass_backward import TangentText

BOUND_NAME = "backward_of_some"


def is_recorded(parts: Partitioned) -> bool:
    """Whether the module is bound to what records such a backward."""
    return parts.backward is not None and bool(parts.joint.tellers) and _cannot(parts) is None


def _cannot(parts: Partitioned) -> str | None:
    """Why the backward of some gradients is not recorded; None where it is."""
    if parts.backward is not None and any(map(has_effect, parts.backward.nodes)):
        return "its backward has an effect"
    return why_not(parts)


def write_choice(builder: TextBuilder, parts: Partitioned, tangents: list[TangentText], graph: str) -> str:
    """The name of the graph that runs; `graph` is that of the backward of all."""
    tangents = [tangent for tangent in tangents if tangent.differentiable]
    received = [tangent.parameter for tangent in tangents if tangent.nodes]
    conditions = dict[str, Teller]()
    for teller in parts.joint.tellers:
        of = [tangents[at].parameter for at in sorted(teller.tangents) if tangents[at].nodes]
        if of:
            conditions.setdefault(" and ".join(f"{name} is None" for name in of), teller)
    if not conditions:
        return graph
    names = " and ".join(dict.fromkeys(teller.name for teller in conditions.values()))
    with builder.step("choose the backward", f"{names} may tell a gradient that is missing from zeros"):
        builder.add(f"graph = {graph}")
        with builder.block(f"if {' or '.join(conditions)}:"):
            there = ", ".join(f"{name} is not None" for name in received)
            builder.add(f"graph = {BOUND_NAME}(({there},))")
    return "graph"


def write_refusal(builder: TextBuilder, parts: Partitioned) -> None:
    """What the module does by itself; where it is loaded by aotlens, `BackwardOfSome` stands there."""
    if not parts.joint.tellers:
        return
    reason = _cannot(parts)
    builder.add("", "")
    with builder.block(f"def {BOUND_NAME}(arrived):"):
        if reason is None:
            builder.add(
                "# records the backward of the gradients that arrive; bound where aotlens loads this module"
            )
        builder.add(f"raise RuntimeError({refusal(parts, reason or 'the recording is not at hand')!r})")


def refusal(parts: Partitioned, reason: str) -> str:
    names = ", ".join(dict.fromkeys(teller.name for teller in parts.joint.tellers))
    return (
        f"the backward of `{parts.joint.captured.subject.name}` was run where some of its results have no "
        f"gradient, which {names} may tell from zeros, and is not supported here: {reason}; "
        "differentiate all of the results, or call the function uncompiled"
    )


@dataclass(frozen=True, slots=True)
class GraphOfSome:
    """In place of the backward's graph."""

    arrived: Arrived
    run: Callable[[list[Any]], Any]

    def __call__(self, inputs: list[Any]) -> Any:
        return self.run(inputs)


class BackwardOfSome:
    """Makes the graphs in place of the backward's, each when gradients first arrive so."""

    def __init__(self, parts: Partitioned) -> None:
        self._parts = parts
        self._graphs: dict[Arrived, GraphOfSome] = {}

    def __call__(self, arrived: Arrived) -> GraphOfSome:
        """A graph that takes the backward's inputs, in one list that it empties, and gives its results.

        Raises:
            RuntimeError: it cannot be recorded, or needs what the backward does not keep.
        """
        known = self._graphs.get(arrived)
        if known is None:
            try:
                known = self._graphs[arrived] = self._recorded(arrived)
            except AotlensError as error:
                raise RuntimeError(refusal(self._parts, str(error))) from error
        return known

    def _recorded(self, arrived: Arrived) -> GraphOfSome:
        backward, joint = self._parts.backward, self._parts.joint
        assert backward is not None  # written for training only
        values = gradients_of_some(joint, arrived)
        slots = [out.slot for out in backward.outputs if isinstance(out.slot, GRADIENTS)]
        recorded = recorded_nodes(self._parts)
        nodes = [recorded.get(given.node.name, given.node) for given in backward.inputs]
        pairs = list(zip(nodes, backward.inputs, strict=True))
        saved = [node for node, given in pairs if isinstance(given.slot, SavedInput)]
        tangents = [node for node, given in pairs if isinstance(given.slot, Tangent)]
        assert len(slots) == len(values)  # one per wanted input: `why_not` excludes all else
        program = derivative_program(self._parts, BOUND_NAME, tangents, values, saved)
        position = {id(node): at for at, node in enumerate(nodes)}
        reads = [position[id(given.node)] for given in program.inputs]
        run = load_program(program)

        def graph(inputs: list[Any]) -> Any:
            taken = [inputs[at] for at in reads]
            inputs.clear()
            return run(*taken)

        return GraphOfSome(arrived, graph)
