from tests.gateway.conftest import serve

__all__ = ["serve"]
