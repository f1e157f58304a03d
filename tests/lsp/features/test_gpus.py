"""Choosing a GPU in an editor: from a list of the client's own, or in a message."""

from aotlens.model.gpus.targets import TARGETS
from tests.language_servers import ROOT, STAND_IN
from tests.lsp.strict_client import Process, StrictClient
from tests.report.sample import MODEL


def parts(client: StrictClient, uri: str) -> list[str]:
    """The documents of the traced target."""
    (target,) = [row for row in client.command("aotlens.targets", uri) if row["qualname"] == "Block"]
    return [part for part in target["parts"] if part.startswith("triton")]


def test_a_named_gpu_is_traced_for() -> None:
    with Process(*STAND_IN) as process:
        client = process.client
        client.initialize(ROOT)
        uri = client.open(MODEL)
        client.command("aotlens.trace", uri, None)
        assert parts(client, uri) == []
        assert "targets" in client.command("aotlens.chooseGpu", uri, None, "H100 SXM")
        assert parts(client, uri)[0] == "triton_poi_fused_mul_sigmoid_0"
        assert client.command("aotlens.gpus")["current"] == "H100 SXM"
        client.command("aotlens.chooseGpu", uri, None, "no kernels")
        assert client.command("aotlens.gpus")["current"] is None
        assert parts(client, uri) == []


def test_without_a_name_a_message_offers_every_gpu() -> None:
    with Process(*STAND_IN) as process:
        client = process.client
        client.initialize(ROOT)
        uri = client.open(MODEL)
        closed = client.command("aotlens.chooseGpu", uri)
        assert closed == {"failure": "cancelled", "message": "no GPU was chosen"}
        client.choice = "A10"
        assert "targets" in client.command("aotlens.chooseGpu", uri)
        assert client.command("aotlens.gpus")["current"] == "A10"
        offered = client.notification("window/showMessageRequest")["actions"]
        names = [gpu.name for gpu in TARGETS]
        assert [action["title"] for action in offered] == ["no kernels", *names]


def test_an_untrusted_workspace_traces_for_no_gpu() -> None:
    with Process(*STAND_IN) as process:
        process.client.initialize(ROOT, {"trusted": False})
        uri = process.client.open(MODEL)
        assert process.client.command("aotlens.chooseGpu", uri, None, "A10")["failure"] == "not-run"
