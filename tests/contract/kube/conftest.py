"""Fixtures of the client and informer tests."""

from tests.support.apiserver import api_server, kube, namespace

__all__ = ["api_server", "kube", "namespace"]
