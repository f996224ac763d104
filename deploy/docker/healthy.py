"""Exit code 0 when the server in this container is ready, or a URL answers; for HEALTHCHECK.

healthy.py [URL]
"""

from __future__ import annotations

import os
import sys
import urllib.error
import urllib.request

port = os.environ.get("TRIMODAL_HEALTH_PORT", "8003")
host = os.environ.get("TRIMODAL_HEALTH_HOST") or os.environ.get("TRIMODAL_HOST", "")
host = {"": "127.0.0.1", "0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
url = sys.argv[1] if sys.argv[1:] else f"http://{f'[{host}]' if ':' in host else host}:{port}/ready"
try:
    # Not through the proxy that a company's environment names.
    with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(url, timeout=3) as answer:
        sys.exit(0 if answer.status == 200 else 1)
except (OSError, urllib.error.URLError) as error:
    sys.exit(f"not ready: {error}")
