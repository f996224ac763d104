"""Serves one peer on a free port of 127.0.0.1 until stdin is closed; prints the port once it listens.

    python -m trimodal.bench.peers MODULE OPTIONS

MODULE has `make_app`, which gets OPTIONS (JSON) as arguments. The process of the bench holds the other end of
stdin: whatever way that ends, this ends too.
"""

from __future__ import annotations

import json
import os
import socket
import sys
import threading
from importlib import import_module

from trimodal.errors import OperatorError


def main() -> int:
    module, options = sys.argv[1:]
    threading.Thread(target=_end_with_stdin, daemon=True).start()
    answer = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print goes to the log: the bench reads the port alone
    try:
        app = import_module(module).make_app(**json.loads(options))
    except OperatorError as error:
        print(error, file=sys.stderr)
        return 1
    import uvicorn

    listener = socket.create_server(("127.0.0.1", 0), backlog=128)
    print(listener.getsockname()[1], file=answer, flush=True)
    uvicorn.Server(uvicorn.Config(app, log_level="warning")).run(sockets=[listener])
    return 0


def _end_with_stdin() -> None:
    sys.stdin.buffer.read()
    os._exit(0)


if __name__ == "__main__":
    sys.exit(main())
