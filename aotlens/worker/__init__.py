"""Trace user code in child processes: protocol, client, server.

Invariant: importing this package or `client`, `protocol`, `codec`, `targets`, `grammar` loads no torch, so
the language server and the terminal app stay light and cannot be harmed by what they show.
"""
