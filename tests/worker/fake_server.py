"""The worker's server around a trace without torch: it only runs the script.

`spawn` as the argument takes the server that starts a fresh process for each trace.
"""

import os
import sys
import time

from aotlens.session.errors.failures import failure_of
from aotlens.session.script.source import load_script, new_module, run_script
from aotlens.worker import spawned_trace, spawning_server
from aotlens.worker.codec import Outcome
from aotlens.worker.process import take_over_stdio
from aotlens.worker.protocol import Hello, TraceRequest
from aotlens.worker.requests import ProgressFunction
from aotlens.worker.server import Server, serve


def trace(request: TraceRequest, progress: ProgressFunction) -> Outcome:
    progress("import", request.path)
    try:
        script = load_script(request.path)
        progress("run", "")
        run_script(script, new_module(script, "__main__"), request.argv)
    except BaseException as error:  # noqa: BLE001 (as the real trace does)
        return Outcome(None, failure_of(error, request.path))
    return Outcome({"argv": list(request.argv), "pid": os.getpid()}, None, (os.path.abspath(request.path),))


def answer_again(request: TraceRequest, progress: ProgressFunction) -> Outcome:
    """A question about a held trace: the process has the modules that the trace's script has imported."""
    if request.options.what_if == ("hang",):
        time.sleep(600)
    main = sys.modules.get("held_state")
    state = getattr(main, "state", None)
    if main is not None:
        main.state = "changed by a question"  # type: ignore[attr-defined]
    data = {"state": state, "what_if": list(request.options.what_if), "pid": os.getpid()}
    return Outcome(data, None, (os.path.abspath(request.path),))


if __name__ == "__main__":
    if sys.argv[1:2] == ["child"]:
        del sys.argv[1]
        spawned_trace.main(lambda: (trace, Hello(os.getpid(), "none", "none")))
    reading, writing = take_over_stdio()
    if sys.argv[1:] == ["spawn"]:
        sys.exit(spawning_server.serve(reading, writing, (sys.executable, __file__, "child")))
    server = Server(trace, writing, question_trace=lambda: answer_again)
    sys.exit(serve(server, Hello(os.getpid(), "none", "none"), reading))
