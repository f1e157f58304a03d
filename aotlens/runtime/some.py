"""Which backward runs where a gradient that does not arrive is more than zeros to it.

Invariant: a custom function or a hook that takes such a gradient sees what it sees in eager; where the
backward of the gradients that are there cannot be recorded, the call is refused by the name of what is on
the way.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from aotlens.build.describe import site_of
from aotlens.errors import AotlensError
from aotlens.ir.program import Program, has_effect
from aotlens.ir.slots import GRADIENTS, SavedInput, Tangent
from aotlens.joint.some import Arrived, gradients_of_some
from aotlens.model.report import Site
from aotlens.partition.higher import derivative_program, recorded_nodes
from aotlens.partition.records import Partitioned
from aotlens.partition.without import slopes, without
from aotlens.runtime.builder import TextBuilder
from aotlens.runtime.double import why_not_recorded_again
from aotlens.runtime.graphs import load_program, runnable
from aotlens.runtime.subclass_backward import TangentText

BOUND_NAME = "backward_of_some"
CompileOther = Callable[[Program], Callable[[list[Any]], Any]]


def _cannot(parts: Partitioned) -> str | None:
    """Why the backward of some gradients is not recorded; None where it is."""
    if parts.backward is not None and any(map(has_effect, parts.backward.nodes)):
        return "its backward has an effect"
    return why_not_recorded_again(parts)


def write_choice(builder: TextBuilder, parts: Partitioned, tangents: list[TangentText], graph: str) -> str:
    """The name of the graph that runs; `graph` is that of the backward of all."""
    taken = [tangent for tangent in tangents if tangent.differentiable]
    received = [tangent for tangent in taken if tangent.nodes]
    conditions = dict[str, str]()
    for teller in parts.joint.tellers:
        of = [taken[at] for at in sorted(teller.tangents) if taken[at].nodes]
        if of:
            conditions.setdefault(
                _none_of(of), f"{teller.name} may tell a gradient that is missing from zeros"
            )
    zeros, sites = _where_zeros_will_not_do(parts, received)
    reasons = [*dict.fromkeys(conditions.values()), *zeros.values()]
    if zeros:
        there = " or ".join(f"{tangent.parameter} is not None" for tangent in received)
        conditions[f"({' or '.join(zeros)}) and ({there})"] = ""
    if not conditions:
        return graph
    with builder.step("choose the backward", "; ".join(reasons), sites=sites):
        builder.add(f"graph = {graph}")
        with builder.block(f"if {' or '.join(conditions)}:"):
            arrived = ", ".join(f"{tangent.parameter} is not None" for tangent in received)
            builder.add(f"graph = {BOUND_NAME}(({arrived},))")
    return "graph"


def _none_of(tangents: list[TangentText]) -> str:
    return " and ".join(f"{tangent.parameter} is None" for tangent in tangents)


def _where_zeros_will_not_do(
    parts: Partitioned, received: list[TangentText]
) -> tuple[dict[str, str], tuple[Site, ...]]:
    """By their conditions, the reasons; and the user's lines."""
    if parts.backward is None or len(received) < 2 or (parts.joint.tellers and _cannot(parts) is not None):
        return {}, ()
    found, sites = dict[str, str](), list[Site | None]()
    for slope in slopes(parts.backward):
        of = [tangent for tangent in received if slope.tangents & set(map(id, tangent.nodes))]
        if len(of) == len(received):  # the tensors inside of one wrapper arrive together
            continue
        results = ", ".join(f"`{tangent.name}`" for tangent in of)
        of_what = slope.node.origin.differentiates or slope.node.origin
        found[_none_of(of)] = (
            f"zeros for a missing gradient of {results} would meet what may be infinite, "
            f"in the derivative of `{of_what.op or slope.node.target}`"
        )
        sites.append(site_of(slope.node.origin))
    return found, tuple(site for site in sites if site is not None)


def is_asked(builder: TextBuilder) -> bool:
    """Whether the backward may be that of some of the gradients."""
    return any(f"graph = {BOUND_NAME}(" in line for line in builder.lines)


def is_bound(builder: TextBuilder, parts: Partitioned) -> bool:
    """Whether the module is bound to what makes such a backward."""
    return is_asked(builder) and not (parts.joint.tellers and _cannot(parts) is not None)


def write_refusal(builder: TextBuilder, parts: Partitioned, graph: str) -> None:
    """What the module does by itself; where it is loaded by aotlens, `BackwardOfSome` stands there."""
    if not is_asked(builder):
        return
    reason = _cannot(parts)
    builder.add("", "")
    with builder.block(f"def {BOUND_NAME}(arrived):"):
        if not parts.joint.tellers:
            _write_zeros_instead(builder, parts, graph)
            return
        if reason is None:
            builder.add(
                "# records the backward of the gradients that arrive; bound where aotlens loads this module"
            )
        builder.add(f"raise RuntimeError({refusal(parts, reason or 'the recording is not at hand')!r})")


def _write_zeros_instead(builder: TextBuilder, parts: Partitioned, graph: str) -> None:
    """Zeros that met nothing infinite leave no nan: the gradients are those of what arrives."""
    builder.add(
        "# leaves out what is missing; bound where aotlens loads this module, and by itself takes zeros"
    )
    with builder.block("def of_zeros(inputs):"):
        builder.add(f"gradients = {graph}(inputs)")
        with builder.block(
            "if any(torch.is_tensor(gradient) and gradient.isnan().any() for gradient in gradients):"
        ):
            message = (
                f"the backward of `{parts.joint.captured.subject.name}` was run where some of its results "
                "have no gradient: zeros in their place give nan, which eager may not; differentiate "
                "all of the results, or call the function where aotlens compiles it"
            )
            builder.add(f"raise RuntimeError({message!r})")
        builder.add("return gradients")
    builder.add("return of_zeros")


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

    def __init__(self, parts: Partitioned, compile_other: CompileOther | None) -> None:
        self._parts = parts
        self._compile = compile_other
        self._graphs: dict[Arrived, GraphOfSome] = {}
        self.records = bool(parts.joint.tellers)
        """Whether it is recorded anew, and not what is left of the backward."""

    def __call__(self, arrived: Arrived) -> GraphOfSome:
        """A graph that takes the backward's inputs, in one list that it empties, and gives its results.

        Raises:
            RuntimeError: it cannot be recorded, or needs what the backward does not keep.
        """
        known = self._graphs.get(arrived)
        if known is None:
            known = self._graphs[arrived] = self._made(arrived)
        return known

    def _made(self, arrived: Arrived) -> GraphOfSome:
        if not self.records:
            return self._without(arrived)
        try:
            return self._recorded(arrived)
        except AotlensError as error:
            raise RuntimeError(refusal(self._parts, str(error))) from error

    def _without(self, arrived: Arrived) -> GraphOfSome:
        """What is left of the backward, by the backend's code."""
        backward, like = self._parts.backward, iter(self._parts.joint.wrapped_tangents)
        assert backward is not None  # written for training only
        nodes = iter([given.node for given in backward.inputs if isinstance(given.slot, Tangent)])
        missing = set[int]()
        for is_there in arrived:
            wrapped = next(like)
            taken = [next(nodes) for _ in (wrapped.nodes() if wrapped is not None else (None,))]
            missing |= set() if is_there else set(map(id, taken))
        at, of = {place for place, is_there in enumerate(arrived) if is_there}, self._parts.joint.arrivals
        program = without(backward, missing, lambda slot: bool(at & of.get((type(slot), slot.index), set())))
        return GraphOfSome(
            arrived, runnable(self._compile(program)) if self._compile else load_program(program, boxed=True)
        )

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
        assert len(slots) == len(values)  # one per wanted input: `why_not_recorded_again` excludes all else
        program = derivative_program(self._parts, BOUND_NAME, tangents, values, saved)
        position = {id(node): at for at, node in enumerate(nodes)}
        reads = [position[id(given.node)] for given in program.inputs]
        run = load_program(program)

        def graph(inputs: list[Any]) -> Any:
            taken = [inputs[at] for at in reads]
            inputs.clear()
            return run(*taken)

        return GraphOfSome(arrived, graph)
