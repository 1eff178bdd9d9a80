"""The only code besides kopf's watches that talks to the Kubernetes API."""
