"""Dynamo: what it compiles now, callbacks for what it does, and how code is hidden from it."""
