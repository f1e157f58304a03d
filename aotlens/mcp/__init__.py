"""`aotlens mcp`: a Model Context Protocol server that gives agents the answers of the commands.

Invariant: this process never imports torch and never runs user code.  A tool that runs a script needs
`run_user_code: true` and runs it in a child process; the other tools read reports.
"""
