"""What a log has besides the targets of its report, in words. Standard library only, for every front end."""

from aotlens.model.log import Log
from aotlens.view.names import first_names
from aotlens.view.quantities import counted, every_digit, multiplied

__all__ = ["UNKNOWN_WHY", "listed_text", "processes_text", "ranks_text", "unknown_kinds_text"]

MOST_KINDS = 6
MOST_RANKS = 8
UNKNOWN_WHY = "of a library, or of a torch newer than this aotlens; nothing of them is in the report"


def listed_text(log: Log | None) -> str:
    """Return `3,172 other targets of the log are not read`; empty if all are."""
    if log is None or not log.listed_count:
        return ""
    verb = "is" if log.listed_count == 1 else "are"
    other = "target" if log.listed_count == 1 else "targets"
    return f"{every_digit(log.listed_count)} other {other} of the log {verb} not read"


def processes_text(log: Log | None) -> str:
    """Return that several processes with the same rank, or with none, count as one; empty if none do."""
    if log is None or log.processes_of_a_rank < 2:
        return ""
    return (
        f"{log.processes_of_a_rank} processes with the same rank, or with none, wrote here, such as several"
        " runs into one folder: what they compiled alike is shown once, and times are added up"
    )


def ranks_text(ranks: tuple[int, ...]) -> str:
    """Return ` (ranks 0 to 3)` for a target that these ranks of several compiled; empty without ranks."""
    if not ranks:
        return ""
    if len(ranks) == 1:
        return f" (rank {ranks[0]})"
    if ranks == tuple(range(ranks[0], ranks[-1] + 1)):
        return f" (ranks {ranks[0]} to {ranks[-1]})"
    return f" (ranks {', '.join(map(str, ranks[:MOST_RANKS]))}{', …' if len(ranks) > MOST_RANKS else ''})"


def unknown_kinds_text(log: Log | None, most: int = MOST_KINDS) -> str:
    """Return `2 unknown kinds of records: vllm_graph ×3, other`; empty if every kind is known."""
    unknown = [kind for kind in log.unused if not kind.is_known] if log is not None else []
    if not unknown:
        return ""
    names = [f"{kind.name} {multiplied(kind.count)}".rstrip() for kind in unknown]
    kinds = counted(len(unknown), "unknown kind")
    return f"{kinds} of records: {first_names(names, most)}"
