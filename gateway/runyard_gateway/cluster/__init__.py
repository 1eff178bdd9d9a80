"""The gateway's world in a cluster: Run objects, the operator that executes them, and agent pods."""
