"""Builds Runyard's images, and images of agents, without an image registry; standard library only."""
