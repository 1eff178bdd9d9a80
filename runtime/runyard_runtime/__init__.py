"""The server in the agent pod: loads graphs, executes runs in slots, streams events, writes checkpoints."""
