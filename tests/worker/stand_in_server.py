"""The worker's server around a trace without torch: it runs the script, and reports what it printed as rows."""

import os
import sys

from aotlens.session.failures import failure_of
from aotlens.session.script import load_script, run_script
from aotlens.worker.child import ProgressFunction
from aotlens.worker.codec import Outcome
from aotlens.worker.process import take_over_stdio
from aotlens.worker.protocol import Hello, TraceRequest
from aotlens.worker.server import serve


def trace(request: TraceRequest, progress: ProgressFunction) -> Outcome:
    progress("import", request.path)
    try:
        script = load_script(request.path)
        progress("run", "")
        run_script(script, request.argv)
    except BaseException as error:
        return Outcome(None, failure_of(error, request.path))
    return Outcome({"argv": list(request.argv), "pid": os.getpid()}, None, (os.path.abspath(request.path),))


if __name__ == "__main__":
    reading, writing = take_over_stdio()
    sys.exit(serve(trace, Hello(os.getpid(), "none", "none"), reading, writing))
