"""The operator: reconciles Agent and Run."""
