"""The child process of `aotlens why`: it runs the script unchanged and observes Dynamo."""
