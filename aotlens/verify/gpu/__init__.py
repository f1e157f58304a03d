"""Code for a GPU compared with eager on a machine without a GPU."""
