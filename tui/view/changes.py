"""What a new trace changed, in one line each, for `--watch`."""

from collections import Counter
from collections.abc import Iterator

from aotlens.report.records import SavedValue, Target
from aotlens.report.summary import call_count, counted
from tui.view.places import home_file, line_place
from tui.view.quantities import signed_size
from tui.view.rows import Line, Link, Part
from tui.view.saved import value_name


def changes(old: Target, new: Target) -> tuple[Line, ...]:
    """Saved bytes, nodes and diagnostics that differ; empty when the trace says the same."""
    return (*saved_changes(old, new), *node_changes(old, new), *diagnostic_changes(old, new))


def headline(old: Target, new: Target) -> tuple[Part, ...]:
    """`saved +3.1 MiB at line 41`: the total, and the place of the value that weighs most in it."""
    before, after = saved_values(old), saved_values(new)
    difference = sum(after.values()) - sum(before.values())
    if difference:
        heaviest = max({**before, **after}, key=lambda key: abs(after.get(key, 0) - before.get(key, 0)))
        kept = {value_key(saved): saved for saved in saved_of(new)}.get(heaviest)
        where = f" at {line_place(kept.span, home_file(new))}" if kept and kept.span else ""
        return Part("saved ", "dim"), Part(signed_size(difference), tone(difference)), Part(where, "dim")
    number = sum(1 for _ in changes(old, new))
    return (Part(counted(number, "change") if number else "nothing changed", "dim"),)


def saved_changes(old: Target, new: Target) -> Iterator[Line]:
    """The total, then each value; line numbers move with edits, so values are matched by name and shape."""
    before, after = saved_values(old), saved_values(new)
    kept = {value_key(saved): saved for saved in saved_of(new)}
    if sum(after.values()) != sum(before.values()):
        yield Line((Part("  "), *headline(old, new)))
    for key in [*after, *(key for key in before if key not in after)]:
        step = after.get(key, 0) - before.get(key, 0)
        if step:
            yield value_change(key[0], step, kept.get(key), new)


def value_key(saved: SavedValue) -> tuple[str, str]:
    return (saved.name or saved.node, saved.tensor.short())


def value_change(name: str, step: int, kept: SavedValue | None, target: Target) -> Line:
    """`+3.1 MiB att  at line 41`; a value that is gone has no place any more."""
    where = f"  at {line_place(kept.span, home_file(target))}" if kept else "  no longer saved"
    shown = value_name(kept) if kept else name
    parts = (
        Part(f"  {signed_size(step):>11} ", tone(step)),
        Part(shown, "name"),
        Part(where, "place"),
    )
    return Line(parts, Link((kept.span,) if kept and kept.span else ()))


def tone(difference: int) -> str:
    return "warning" if difference > 0 else "ok"


def saved_of(target: Target) -> tuple[SavedValue, ...]:
    return target.partition.saved if target.partition else ()


def saved_values(target: Target) -> Counter[tuple[str, str]]:
    found: Counter[tuple[str, str]] = Counter()
    for saved in saved_of(target):
        found[value_key(saved)] += saved.bytes
    return found


def node_changes(old: Target, new: Target) -> Iterator[Line]:
    for stage in new.stages:
        earlier = old.stage(stage.name)
        difference = call_count(stage) - call_count(earlier) if earlier else 0
        if difference and stage.name in ("forward", "backward", "inference"):
            grown = f"{difference:+,} {'node' if abs(difference) == 1 else 'nodes'}"
            yield Line((Part(f"  {stage.name} ", "dim"), Part(grown, tone(difference))))


def diagnostic_changes(old: Target, new: Target) -> Iterator[Line]:
    before = Counter((item.code, item.message) for item in old.diagnostics)
    after = Counter((item.code, item.message) for item in new.diagnostics)
    for item in new.diagnostics:
        if (item.code, item.message) not in before:
            link = Link((item.span,) if item.span else ())
            yield Line(
                (Part("  new ", "dim"), Part(f"{item.code} ", item.severity), Part(item.message)), link
            )
    for code, message in before:
        if (code, message) not in after:
            yield Line((Part("  gone ", "ok"), Part(f"{code} {message}", "dim")))
