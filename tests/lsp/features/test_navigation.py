"""Between expressions and documents: definition, references, symbols, and the documents themselves."""

from pathlib import Path

import pytest

from tests.language_servers import ROOT, STAND_IN
from tests.lsp.sample_session import line_of, place_of, traced
from tests.lsp.strict_client import Json, Process, StrictClient
from tests.report.sample import MODEL


def test_graph_documents_lead_to_the_expression_and_back() -> None:
    with Process(*STAND_IN) as process:
        shared = process.client
        shared.initialize(ROOT, {"virtualDocuments": True})
        uri = traced(shared)
        shown_answer = shared.command("aotlens.show", uri, "Block", "backward")
        assert shown_answer["shown"] is True
        assert shared.notification("window/showDocument")["uri"] == shown_answer["uri"]
        page = shared.request("aotlens/document", {"uri": shown_answer["uri"]})
        assert page["languageId"] == "python"
        text = page["text"].splitlines()
        line = next(number for number, one in enumerate(text) if one.startswith("    gelu_backward ="))
        gelu = line_of("hidden = functional")
        expression = {"start": {"line": gelu, "character": 17}, "end": {"line": gelu, "character": 44}}
        found = shared.at("definition", shown_answer["uri"], line, 4)
        assert found == [{"uri": uri, "range": expression}]
        nodes = shared.at("implementation", uri, gelu, 18)
        assert {"line": line, "character": 0} in [one["range"]["start"] for one in nodes]
        assert [one["uri"].partition("?")[0] for one in nodes] == [
            "aotlens:///Block/forward.py",
            "aotlens:///Block/backward.py",
        ]
        symbols = shared.request(
            "textDocument/documentSymbol", {"textDocument": {"uri": shown_answer["uri"]}}
        )
        assert ("gelu_backward", "f32[32, 64]") in [(one["name"], one["detail"]) for one in symbols]


def test_kernels_for_a_gpu_are_documents_in_each_language() -> None:
    with Process(*STAND_IN) as process:
        shared = process.client
        shared.initialize(ROOT, {"virtualDocuments": True})
        uri = traced(shared, "gpu")
        name = "triton_poi_fused_mul_sigmoid_0"

        def page(part: str) -> object:
            address = shared.command("aotlens.show", uri, "Block", part)["uri"]
            return shared.request("aotlens/document", {"uri": address})

        assert page(name) == {"text": "import triton", "languageId": "python"}
        assert page(f"{name}.ptx") == {"text": ".version 8.7", "languageId": "plaintext"}
        line, character = place_of("hidden.sigmoid()")
        leads = shared.at("implementation", uri, line, character + 8)
        assert leads[-1]["uri"].partition("?")[0] == f"aotlens:///Block/{name}.py"
        told = shared.at("hover", uri, line, character + 8)["contents"]["value"]
        assert "moves 24.0 KiB, 40 registers, spills 48 B, occupancy 75%, at least 0.50 µs" in told


@pytest.mark.parametrize("uri", ["aotlens:/x?%%", "aotlens:/x", "aotlens:/x?W10", "file:///x?W10"])
def test_a_made_up_document_has_no_text(shared: StrictClient, uri: str) -> None:
    assert shared.request("aotlens/document", {"uri": uri}) is None


def test_without_virtual_documents_the_pages_are_read_only_files(shared: StrictClient) -> None:
    uri = traced(shared)
    address = shared.command("aotlens.show", uri, "Block", "wrapper")["uri"]
    file = Path(address.removeprefix("file://"))
    assert "class Block(torch.autograd.Function):" in file.read_text()
    assert file.stat().st_mode & 0o222 == 0
    assert shared.command("aotlens.show", uri, "Block", "kernels") == {
        "uri": None,
        "message": "Block has no kernels program: it has captured, functional, joint, forward, backward, "
        "wrapper, cpp_fused_mul_sigmoid_0",
    }


def test_a_name_is_left_to_the_python_server_and_an_operator_is_ours(shared: StrictClient) -> None:
    uri = traced(shared)
    line, character = place_of("* hidden.sigmoid()")
    assert shared.at("definition", uri, line, character + 2) is None
    assert shared.at("definition", uri, line, character - 1) is not None


def graph(shared: StrictClient, uri: str, part: str, name: str = "Block") -> tuple[str, list[str]]:
    """The address and the lines of one program."""
    address = shared.command("aotlens.show", uri, name, part)["uri"]
    return address, Path(address.removeprefix("file://")).read_text().splitlines()


def starts(found: Json) -> list[tuple[str, int]]:
    """Each location as the last part of its address and its line."""
    return [(one["uri"].rpartition("/")[2], one["range"]["start"]["line"]) for one in found]


def test_references_in_a_graph_are_the_expression_and_the_readers(shared: StrictClient) -> None:
    uri = traced(shared)
    address, text = graph(shared, uri, "forward")
    made = next(number for number, one in enumerate(text) if one.startswith("    gelu ="))
    read = [
        number
        for number, one in enumerate(text)
        if "(gelu" in one or (", gelu" in one and "return" not in one)
    ]
    source = (MODEL.name, line_of("hidden = functional"))
    graph_file = address.rpartition("/")[2]
    context = {"includeDeclaration": True}
    found = starts(shared.at("references", address, made, 5, context=context))
    assert found == [source, (graph_file, made), *((graph_file, line) for line in read)]
    context = {"includeDeclaration": False}
    assert starts(shared.at("references", address, made, 5, context=context)) == [found[0], *found[2:]]


def test_a_name_that_is_read_in_a_graph_leads_to_what_made_it(shared: StrictClient) -> None:
    uri = traced(shared)
    address, text = graph(shared, uri, "forward")
    made = next(number for number, one in enumerate(text) if one.startswith("    gelu ="))
    line = next(number for number, one in enumerate(text) if "(gelu" in one)
    character = text[line].index("gelu") + 1
    assert starts(shared.at("definition", address, line, character)) == [
        (MODEL.name, line_of("hidden = functional"))
    ]
    assert starts(shared.at("declaration", address, line, character)) == [(address.rpartition("/")[2], made)]
    assert starts(shared.at("definition", address, line, 5)) != starts(
        shared.at("definition", address, line, character)
    )


def test_the_comment_above_a_line_leads_where_the_line_does(shared: StrictClient) -> None:
    uri = traced(shared)
    address, text = graph(shared, uri, "inference", "score")
    comment = text.index("    # logits = x @ head")
    assert starts(shared.at("definition", address, comment, 8)) == [(MODEL.name, line_of("x @ head"))]


def test_steps_of_the_wrapper_lead_to_what_causes_them(shared: StrictClient) -> None:
    uri = traced(shared)
    address, text = graph(shared, uri, "wrapper")
    line = next(number for number, one in enumerate(text) if "cache.copy_(mul)" in one)
    assert starts(shared.at("definition", address, line, 6)) == [(MODEL.name, line_of("cache.mul_(0.9)"))]
    symbols = shared.request("textDocument/documentSymbol", {"textDocument": {"uri": address}})
    assert [(one["name"], one["range"]["start"]["line"]) for one in symbols] == [
        ("copy mutated inputs back", 16),
        ("make output views again", 18),
        ("join forward and backward", 3),
    ]


def test_a_kernel_leads_to_every_expression_in_it(shared: StrictClient) -> None:
    uri = traced(shared)
    address, _ = graph(shared, uri, "cpp_fused_mul_sigmoid_0")
    assert address.endswith("/Block/cpp_fused_mul_sigmoid_0.cpp")
    line = line_of("gated = hidden")
    assert starts(shared.at("definition", address, 0, 0)) == [(MODEL.name, line)] * 2


def test_references_of_an_expression_are_its_nodes_and_kernels(shared: StrictClient) -> None:
    uri = traced(shared)
    line, character = place_of("hidden.sigmoid()")
    found = shared.at("references", uri, line, character, context={"includeDeclaration": True})
    assert found == shared.at("implementation", uri, line, character)
    assert {one["uri"].rpartition("/")[2] for one in found} == {
        "forward.py",
        "backward.py",
        "cpp_fused_mul_sigmoid_0.cpp",
    }


def test_a_client_without_nested_symbols_gets_a_flat_list() -> None:
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT, capabilities={})
        address, text = graph(process.client, traced(process.client), "forward")
        symbols = process.client.request("textDocument/documentSymbol", {"textDocument": {"uri": address}})
        line = next(number for number, one in enumerate(text) if one.startswith("    gelu ="))
        found = next(one for one in symbols if one["name"] == "gelu")
        assert (found["location"]["uri"], found["location"]["range"]["start"]["line"]) == (address, line)
        assert found["containerName"] == "forward"


def test_a_target_s_name_leads_to_its_graphs_and_its_wrapper(shared: StrictClient) -> None:
    uri = traced(shared)
    line, character = place_of("Block", "class Block")
    found = shared.at("implementation", uri, line, character)
    assert [Path(one["uri"]).name for one in found] == ["forward.py", "backward.py", "wrapper.py"]


def test_a_client_that_cannot_show_documents_is_told_where_they_are() -> None:
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT, capabilities={})
        uri = traced(process.client)
        answer = process.client.command("aotlens.show", uri, "Block", "wrapper")
        (said,) = process.client.all("window/showMessage")
    assert answer["shown"] is False
    assert said == {"type": 3, "message": f"to read: {answer['uri'].removeprefix('file://')}"}


def test_a_hover_in_a_graph_has_the_facts_of_the_node(shared: StrictClient) -> None:
    uri = traced(shared)
    address, text = graph(shared, uri, "forward")
    made = next(number for number, one in enumerate(text) if one.startswith("    gelu ="))
    told = shared.at("hover", address, made, 5)["contents"]["value"]
    assert told.splitlines()[0].startswith("**`gelu`** · aten.gelu")
    assert "f32[32, 64]" in told
    assert "saved" in told
    read = next(number for number, one in enumerate(text) if "(gelu" in one or ", gelu" in one)
    assert shared.at("hover", address, read, text[read].index("gelu") + 1)["contents"]["value"] == told
    assert shared.at("hover", address, 0, 0) is None


def test_a_hover_in_the_wrapper_has_its_step_and_in_a_kernel_its_cost() -> None:
    with Process(*STAND_IN) as process:
        shared = process.client
        shared.initialize(ROOT, {"virtualDocuments": True})
        uri = traced(shared, "gpu")
        address = shared.command("aotlens.show", uri, "Block", "wrapper")["uri"]
        text = shared.request("aotlens/document", {"uri": address})["text"].splitlines()
        line = next(number for number, one in enumerate(text) if "cache.copy_(" in one)
        told = shared.at("hover", address, line, 6)["contents"]["value"]
        assert "runs on each call" in told.splitlines()[0]
        kernel = shared.command("aotlens.show", uri, "Block", "triton_poi_fused_mul_sigmoid_0.ptx")["uri"]
        told = shared.at("hover", kernel, 0, 2)["contents"]["value"]
        assert told.splitlines()[0].startswith("**`triton_poi_fused_mul_sigmoid_0`** · forward")
