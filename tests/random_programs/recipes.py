"""The strategy from which random programs are drawn.

Invariant: a recipe holds no names, only how many values back a statement reaches, so that any part of it may
be left out; hypothesis shrinks towards fewer statements, newer values, known sizes and the first policy.
"""

from dataclasses import dataclass
from typing import Literal

from hypothesis import strategies as st

from tests.random_programs.grammar import (
    ARGUMENTS,
    BINDING,
    IN_PLACE,
    OF_MODULES,
    POLICIES,
    PURE,
    SHARED,
    UNDER,
    VIEWS,
)

Kind = Literal["view", "pure", "in place", "module", "binding"]
ROWS: dict[Kind, tuple[str, ...]] = {
    "view": VIEWS,
    "pure": PURE,
    "in place": IN_PLACE,
    "module": OF_MODULES,
    "binding": BINDING,
}
PLAIN: tuple[Kind, ...] = ("view", "view", "pure", "in place", "in place")
OF_A_MODULE: tuple[Kind, ...] = (*PLAIN, "module", "module", "binding")


@dataclass(frozen=True, slots=True)
class Statement:
    """One line."""

    kind: Kind
    row: int
    """Which of its kind, counted around."""
    first: int
    """How many values back `{v}` is, counted around; `{w}` and `{m}` likewise."""
    second: int
    under: str


@dataclass(frozen=True, slots=True)
class Recipe:
    """One program."""

    arguments: tuple[str, ...]
    shared: tuple[tuple[int, str], ...]
    """Further arguments: which one they come from, and how."""
    turned: int
    """By how much the order of the arguments is turned."""
    statements: tuple[Statement, ...]
    results: tuple[int, ...]
    """How many values back each result is."""
    of_module: bool
    training: bool
    dynamic: bool
    policy: str


_BACK = st.integers(0, 9)


def _statements(kinds: tuple[Kind, ...]) -> st.SearchStrategy[tuple[Statement, ...]]:
    one = st.builds(
        Statement,
        kind=st.sampled_from(kinds),
        row=st.integers(0, max(map(len, ROWS.values())) - 1),
        first=_BACK,
        second=_BACK,
        under=st.sampled_from(UNDER),
    )
    return st.lists(one, min_size=2, max_size=10).map(tuple)


def recipes() -> st.SearchStrategy[Recipe]:
    """Functions, and every third time modules; every fourth under symbolic sizes."""
    return st.sampled_from((False, False, True)).flatmap(_of_kind)


def _of_kind(of_module: bool) -> st.SearchStrategy[Recipe]:
    return st.builds(
        Recipe,
        arguments=st.lists(st.sampled_from(ARGUMENTS), min_size=1, max_size=3).map(tuple),
        shared=st.lists(st.tuples(st.integers(0, 2), st.sampled_from(SHARED)), max_size=2).map(tuple),
        turned=st.integers(0, 4),
        statements=_statements(OF_A_MODULE if of_module else PLAIN),
        results=st.lists(_BACK, min_size=1, max_size=3).map(tuple),
        of_module=st.just(of_module),
        training=st.booleans(),
        dynamic=st.sampled_from((False, False, False, True)),
        policy=st.sampled_from(POLICIES),
    )
