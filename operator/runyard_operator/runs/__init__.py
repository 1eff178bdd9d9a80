"""Reconciling Runs: one reconcile plans a whole thread."""
