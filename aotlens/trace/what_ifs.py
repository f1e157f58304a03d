"""Answer what-ifs about a graph from a log with our solver, compared with its own choice.

Invariant: both sides are our solver's, because torch's solver cannot be asked again.  A change may name a
value of one target only, so a target without the value has no answer; if all lack it, that is an error.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field

from aotlens.build.memory import predicted_peak
from aotlens.errors import UnknownValueError, UserError
from aotlens.joint.records import Joint
from aotlens.model.partition import Partition, Totals, WhatIf
from aotlens.partition.overrides import unknown_overrides
from aotlens.partition.policies import added_bytes
from aotlens.partition.records import ForwardBackward, Split
from aotlens.partition.sides import backward_program, forward_program
from aotlens.partition.stage import recomputed_values, split_joint
from aotlens.partition.storages import storage_root
from aotlens.partition.user_names import user_names
from aotlens.policy import Policy

__all__ = ["DEFAULT", "SolverRequest"]


@dataclass(frozen=True, slots=True)
class SolverRequest:
    """The request to our solver for each training graph of a log."""

    policy: str = "min-cut"
    changes: tuple[str, ...] = ()
    """Changes of the policy to evaluate, in the form of `--what-if`."""
    _unknown: dict[str, UnknownValueError] = field(default_factory=dict)
    """By change, the first error about a name that a graph lacks."""

    def answers(self, joint: Joint, split: Split) -> tuple[WhatIf, ...]:
        """Return the totals of each change, without those that name no value of this graph.

        Raises:
            UserError: an impossible change.
        """
        known = [change for change in self.changes if not self._lacks(change, joint, split)]
        if not known:
            return ()
        before = _totals(joint, split)
        return tuple(_what_if(change, joint, split, before) for change in known)

    def check_answered(self, partitions: Iterable[Partition | None], hint: str = "") -> None:
        """Raise UserError, which ends with the hint, for a change that no graph of the log answers."""
        ending = f"; {hint}" if hint else ""
        trained = [partition for partition in partitions if partition is not None]
        answered = {answer.change for partition in trained for answer in partition.what_if}
        for change in self.changes:
            if change in answered:
                continue
            if change in self._unknown:
                raise UnknownValueError(f"{self._unknown[change]}{ending}")
            notes = dict.fromkeys(partition.own_note for partition in trained if partition.own_note)
            why = "; ".join(notes) or "no target that was read is trained, so nothing is saved"
            raise UserError(f"--what-if {change}: {why}{ending}")

    def _lacks(self, change: str, joint: Joint, split: Split) -> bool:
        overrides = Policy.parse(change).overrides
        errors = unknown_overrides(joint, split.sides, overrides, user_names(joint))
        for error in errors.values():
            self._unknown.setdefault(change, error)
        return bool(errors)


DEFAULT = SolverRequest()


def _what_if(change: str, joint: Joint, split: Split, before: Totals) -> WhatIf:
    other = split_joint(joint, split.policy.changed(change))
    old, new = _adding(joint, split), _adding(joint, other)
    return WhatIf(
        change=change,
        before=before,
        after=_totals(joint, other),
        no_longer_saved=tuple(name for name in old if name not in new),
        newly_saved=tuple(name for name in new if name not in old),
    )


def _totals(joint: Joint, split: Split) -> Totals:
    division = ForwardBackward(
        joint,
        forward_program(joint, split.saved),
        backward_program(joint, split.saved, split.backward_nodes),
    )
    flops = sum(value.flops for value in recomputed_values(split))
    return Totals(added_bytes(joint, split.saved), flops, predicted_peak(division))


def _adding(joint: Joint, split: Split) -> tuple[str, ...]:
    """Return the saved values that the graph computes; for views their base."""
    roots = (storage_root(node) for node in split.saved)
    return tuple(dict.fromkeys(root.name for root in roots if root.op is not None))
