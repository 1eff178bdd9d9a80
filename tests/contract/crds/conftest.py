"""Fixtures of the CRD tests."""

from tests.support.apiserver import api_server, kube, namespace

__all__ = ["api_server", "kube", "namespace"]
