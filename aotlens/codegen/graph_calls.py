"""How compiled graphs are called: the boxed convention, and graphs that a backend returned unchanged."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import fx

from aotlens.codegen.in_place_updates import with_in_place_updates
from aotlens.ir.program import Program
from aotlens.ir.watched_module import WatchedGraphModule, notify_of_change, returned_unchanged


def as_boxed(function: Callable[..., Any]) -> Callable[[list[Any]], Any]:
    """Return a callable that takes one list, whichever convention the backend chose."""
    if getattr(function, "_boxed_call", False):
        return function

    def call_flat(args: list[Any]) -> Any:
        return function(*args)

    return call_flat


Run = Callable[[list[Any]], Any]


@dataclass(frozen=True, slots=True)
class UnchangedGraph:
    """A graph module that a backend returned unchanged: the program runs in its place until it is
    modified."""

    program: Program
    module: WatchedGraphModule
    run_module: Run
    """Calls the graph module in the boxed convention."""

    def __call__(self, inputs: list[Any]) -> Any:
        return self.run_module(inputs)

    def notify_of_change(self, notify: Callable[[], None]) -> None:
        notify_of_change(self.module, notify)


def as_unchanged_graph(compiled: Any, module: fx.GraphModule, program: Program, run: Run) -> Run:
    """Return `run`, or an `UnchangedGraph` if the backend returned the program's own module.

    A module with tensors or subgraphs runs itself, since these can be replaced in it.
    """
    if program.subgraphs() or any(node.constant is not None for node in program.nodes):
        return run
    if not isinstance(module, WatchedGraphModule) or not returned_unchanged(compiled, module):
        return run
    return UnchangedGraph(with_in_place_updates(program), module, run)
