"""Reconciling Agents: their pods, links and status."""
