"""The gateway in front of a real Triton."""

import pytest

# Rows of the table of calls assert in modules of their own.
pytest.register_assert_rewrite("tests.e2e.gateway.calls")
