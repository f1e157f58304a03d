"""The real server over a tracing process that greets, reads, and never answers."""

import sys
from functools import partial
from typing import cast

from aotlens.worker.client import WorkerClient
from aotlens.worker.codec import encode
from aotlens.worker.protocol import Hello
from lsp_server.first_answer import Replayed
from lsp_server.runs import tracer
from lsp_server.runs.tracer import WorkerFactory
from lsp_server.server import build_server
from lsp_server.streams import guard_standard_streams
from lsp_server.transport import serve_stdio

GREETING = encode(Hello(1, "2", "3"))
SILENT = f"import sys, time; sys.stdout.buffer.write({GREETING!r}); sys.stdout.flush(); time.sleep(600)"

if __name__ == "__main__":
    tracer.SILENCE_S = 0.5
    tracer.START_S = 0.0  # whether it has greeted when it is first asked depends on the machine
    factory = partial(WorkerClient, command=(sys.executable, "-c", SILENT))
    server = build_server(cast(WorkerFactory, factory))
    reader, writer = guard_standard_streams()
    code = serve_stdio(server, Replayed(b"", reader), writer)
    server.end()
    sys.exit(code)
