"""The memory of traced targets as a tree for a side bar."""

from tests.lsp.sample_session import line_of, traced
from tests.lsp.strict_client import StrictClient


def test_the_tree_has_saved_and_live_memory_with_the_places_of_expressions(shared: StrictClient) -> None:
    uri = traced(shared)
    block = next(row for row in shared.command("aotlens.memory") if row["label"] == "Block")
    assert block["description"].startswith("training · ")
    saved, alive = block["children"]
    assert (saved["label"], alive["label"]) == ("Saved for the backward", "Alive at the peak")
    hidden = next(
        row for row in saved["children"] if row["label"].startswith("addmm") or "up" in row["label"]
    )
    assert hidden["uri"] == uri
    assert hidden["line"] == line_of("self.up(x)")
    assert hidden["tooltip"]
    sizes = [row["description"].split(" · ")[0] for row in alive["children"]]
    assert sizes
    assert all(size.endswith("B") for size in sizes)
