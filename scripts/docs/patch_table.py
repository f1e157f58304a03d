"""Print what aotlens changes in torch, as Markdown: a section of docs/architecture/torch.md."""

from collections.abc import Iterator, Sequence

from aotlens.torch_api.patches.scopes import Patch, Scope
from aotlens.torch_api.patches.table import REGISTRATIONS, SCOPES


def main() -> None:
    for scope in SCOPES:
        print("\n".join(section(scope)))
    print("### What is added and stays\n")
    rows = [(item.what, f"`{item.where}`", f"{item.when}; {item.reason}") for item in REGISTRATIONS]
    print("\n".join(table(("what", "where", "when, and why it stays"), rows)))


def section(scope: Scope) -> Iterator[str]:
    """The heading, the sentence and the table of one scope."""
    yield f"### {scope.name[0].upper()}{scope.name[1:]}\n"
    whose = " A handler counts for all threads." if scope.every_thread else ""
    yield f"In force while {scope.when}.{whose}"
    if scope.stays:
        yield f"\n**Not put back:** {scope.stays}."
    yield ""
    names = ("torch's name", "what replaces it", "why")
    yield from table(names, [(f"`{row.target}`", replacement(row), row.reason) for row in scope.rows])
    yield ""


def replacement(row: Patch) -> str:
    """Our function that makes the new value; the part of the handler where the function only calls that."""
    name = row.replace.__qualname__.partition(".<locals>")[0]
    kind, _, handler = name.partition(".")
    if kind == "routed":
        return "the handler" if handler == "__call__" else f"the handler's `{handler}`"
    module = row.replace.__module__.removeprefix("aotlens.torch_api.")
    return "a constant" if kind == "constant" else f"`{module}.{name}`"


def table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    for cells in (names, ["---"] * len(names), *rows):
        yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    main()
