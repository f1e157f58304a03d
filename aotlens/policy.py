"""Partition policies as data: how the user controls the choice between saving and recomputing.

Stdlib only, so that front ends can read a policy without torch.  The text form is what the command line,
settings and `CompileOptions` take: a base, then terms, with commas between: `min-cut`, `default,save:hidden`,
`budget=0.5`, `budget=64MiB,recompute:model.py:41`, `rules.py::keep`.
"""

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from aotlens.errors import UserError

Base = Literal["min-cut", "default", "budget"]
SaveOption = Literal["save", "recompute"]

BASES: tuple[Base, ...] = ("min-cut", "default", "budget")
FORMS = (
    "min-cut",
    "default",
    "budget=BYTES|FRACTION",
    "save:NAME",
    "recompute:NAME",
    "save:FILE:LINE",
    "recompute:FILE:LINE",
    "FILE.py::FUNCTION",
)
"""The forms of a term, for help and errors."""

_UNITS = {
    "": 1,
    "B": 1,
    "KB": 10**3,
    "MB": 10**6,
    "GB": 10**9,
    "KIB": 1 << 10,
    "MIB": 1 << 20,
    "GIB": 1 << 30,
}
_AMOUNT = re.compile(r"(?P<number>\d+(?:\.\d+)?)\s*(?P<unit>%|[KMG]?I?B)?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class MemoryBudget:
    """The most that may be saved: bytes, or a fraction of what `default` would save.  One of the two is
    set."""

    size_bytes: int | None = None
    fraction: float | None = None
    """From 0 to 1."""

    @classmethod
    def parse(cls, text: str) -> "MemoryBudget":
        """`0.5` and `50%` are fractions; `1048576`, `64MiB`, `1.5GB` are bytes.

        Raises:
            UserError: anything else.
        """
        match = _AMOUNT.fullmatch(text.strip())
        if match is None:
            raise UserError(_BAD_BUDGET.format(text=text))
        number, unit = float(match["number"]), (match["unit"] or "").upper()
        if unit == "%" or (unit == "" and ("." in match["number"] or number <= 1)):
            fraction = number / 100 if unit == "%" else number
            if fraction > 1:
                raise UserError(_BAD_BUDGET.format(text=text))
            return cls(fraction=fraction)
        return cls(size_bytes=int(number * _UNITS[unit]))

    def __str__(self) -> str:
        return f"{self.size_bytes}B" if self.size_bytes is not None else f"{100 * (self.fraction or 0):.12g}%"


_BAD_BUDGET = (
    "the memory budget {text!r} is neither bytes (`1048576`, `64MiB`) nor a fraction, from 0 to 1, of what"
    " the policy `default` would save (`0.5`, `50%`)"
)


@dataclass(frozen=True, slots=True)
class Override:
    """The user's decision about one value, or about all values of a source line."""

    decision: SaveOption
    what: str
    """A node's name, a variable's name, or `FILE:LINE`."""

    def __str__(self) -> str:
        return f"{self.decision}:{self.what}"


@dataclass(frozen=True, slots=True)
class Policy:
    """How the values to save for the backward are chosen."""

    base: Base = "min-cut"
    overrides: tuple[Override, ...] = ()
    budget: MemoryBudget | None = None
    """Set when `base` is `budget`."""
    chooser: str | None = None
    """The user's function over one value, as `FILE.py::NAME`."""
    function: Callable[[Any], Any] | None = field(default=None, compare=False)
    """That function, once it is loaded; takes a `partition.overrides.Candidate`."""
    skips_unknown: bool = field(default=False, compare=False)
    """Whether overrides that name nothing in a program are ignored, since a script may have several
    programs."""

    @classmethod
    def parse(cls, terms: str | Iterable[str], budget: str | None = None) -> "Policy":
        """Parse a policy from its text form, or from several terms; `budget` as in `MemoryBudget.parse`.

        Raises:
            UserError: a term that is none of `FORMS`; two bases; a budget with another base; two overrides of
                one value that ask for opposites.
        """
        words = [
            word.strip()
            for term in ([terms] if isinstance(terms, str) else terms)
            for word in term.split(",")
        ]
        bases: list[Base] = []
        policy = cls(budget=MemoryBudget.parse(budget) if budget is not None else None)
        for word in words:
            if word in BASES:
                bases.append(word)
            elif word.startswith("budget="):
                bases.append("budget")
                policy = replace(policy, budget=MemoryBudget.parse(word.removeprefix("budget=")))
            else:
                policy = _with_term(policy, word)
        return _with_base(policy, list(dict.fromkeys(bases)))

    def changed(self, change: str) -> "Policy":
        """Return the policy with the terms of a what-if, which take precedence.

        Raises:
            UserError: as `parse`; a function of the user's.
        """
        terms = Policy.parse(change)
        if terms.chooser is not None:
            raise UserError(f"--what-if takes no function, found `{terms.chooser}`; give it as --policy")
        words = [word.strip() for word in change.split(",")]
        has_base = any(word in BASES or word.startswith("budget=") for word in words)
        changed_values = {override.what for override in terms.overrides}
        own_overrides = (override for override in self.overrides if override.what not in changed_values)
        return replace(
            self,
            base=terms.base if has_base else self.base,
            budget=terms.budget if has_base else self.budget,
            overrides=(*own_overrides, *terms.overrides),
        )

    def without_budget(self) -> "Policy":
        """Return the policy without its budget: `min-cut` with the same overrides."""
        return replace(self, base="min-cut", budget=None)

    def __str__(self) -> str:
        base = f"budget={self.budget}" if self.budget is not None else self.base
        return ",".join([base, *map(str, self.overrides), *([self.chooser] if self.chooser else [])])


def size_bytes(text: str) -> int:
    """Return the bytes of `1048576`, `64 MiB` or `1.5GB`. Raises UserError for anything else."""
    match = _AMOUNT.fullmatch(text.strip())
    if match is None or match["unit"] == "%":
        raise UserError(f"{text!r} is not a size; write bytes (`1048576`), or `64 MiB`, `1.5GB`")
    return int(float(match["number"]) * _UNITS[(match["unit"] or "").upper()])


def _with_term(policy: Policy, word: str) -> Policy:
    decision, separator, what = word.partition(":")
    if decision in ("save", "recompute") and separator and what:
        override = Override("save" if decision == "save" else "recompute", what)
        other = next(
            (
                candidate
                for candidate in policy.overrides
                if candidate.what == what and candidate.decision != decision
            ),
            None,
        )
        if other is not None:
            raise UserError(f"`{other}` and `{override}` ask for opposites: choose one")
        return replace(policy, overrides=(*policy.overrides, override))
    if ".py::" in word and policy.chooser is None and not word.endswith("::"):
        return replace(policy, chooser=word)
    raise UserError(f"no partition policy {word!r}; a policy is one or more of: {', '.join(FORMS)}")


def _with_base(policy: Policy, bases: list[Base]) -> Policy:
    if policy.budget is not None and bases in ([], ["budget"]):
        return replace(policy, base="budget")
    if policy.budget is not None:
        raise UserError(f"a memory budget goes with the policy `budget`, not with `{bases[0]}`")
    if len(bases) > 1:
        raise UserError(f"two partition policies, `{bases[0]}` and `{bases[1]}`: choose one")
    if bases == ["budget"]:
        raise UserError("the policy `budget` needs a memory budget: --memory-budget 0.5, or `budget=64MiB`")
    return replace(policy, base=bases[0]) if bases else policy
