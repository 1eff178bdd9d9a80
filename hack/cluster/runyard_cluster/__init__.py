"""A real Kubernetes on one Linux machine, without a container engine or a registry. See `cli` for the verbs."""
