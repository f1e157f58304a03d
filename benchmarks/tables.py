"""Write the tables of `benchmarks/README.md` from `benchmarks/results/*.json`, never by hand."""

import json
from pathlib import Path
from typing import Any

from benchmarks.harness import RESULTS, show_cell

README = Path(__file__).parent / "README.md"
START, END = "<!-- results -->", "<!-- /results -->"


def markdown(table: dict[str, Any]) -> str:
    columns = table["columns"]
    lines = [
        "| " + " | ".join(columns) + " |",
        "|" + "|".join(["---"] + ["--:"] * (len(columns) - 1)) + "|",
    ]
    lines += ["| " + " | ".join(show_cell(cell) for cell in row) + " |" for row in table["rows"]]
    return "\n".join([f"### {table['title']}", "", *lines, "", table["note"], ""])


def machine(facts: dict[str, Any]) -> str:
    return (
        f"{facts['cpu']}, {facts['cores']} cores, {facts['threads']} threads, load {facts['load']}; "
        f"{facts['system']}, Python {facts['python']}, torch {facts['torch']}."
    )


def render_results() -> str:
    parts = []
    for path in sorted(RESULTS.glob("*.json")):
        result = json.loads(path.read_text())
        if "tables" not in result:  # the trial on a GPU, and the memory of steps there
            continue
        parts += [markdown(table) for table in result["tables"]]
        parts.append(f"Machine: {machine(result['machine'])}\n")
    return "\n".join(parts)


def write_readme() -> None:
    before, _, rest = README.read_text().partition(START)
    _, _, after = rest.partition(END)
    README.write_text(f"{before}{START}\n\n{render_results()}\n{END}{after}")


if __name__ == "__main__":
    write_readme()
