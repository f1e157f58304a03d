"""Generate code for a GPU on a machine without one: replaced queries, drivers and device guards."""
