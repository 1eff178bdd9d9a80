"""Typed clients of Runyard's own HTTP APIs."""
