"""Runs an engine's real loop on a thread of this process, behind a real connection."""

from __future__ import annotations

import logging
import threading
from multiprocessing.connection import Connection, Pipe

from trimodal.llm.engine_core.client import EngineCoreClient
from trimodal.llm.engine_core.core import run_engine
from trimodal.llm.engines.protocol import Engine, EngineLost

logger = logging.getLogger(__name__)


def start_thread(engine: Engine) -> EngineCoreClient:
    """An engine on a thread of this process."""
    ours, theirs = Pipe()
    arguments = (engine, theirs)
    threading.Thread(target=_run_and_close, args=arguments, name="llm-engine-core", daemon=True).start()
    return EngineCoreClient(ours)


def _run_and_close(engine: Engine, connection: Connection) -> None:
    with connection:
        try:
            run_engine(engine, connection)
        except EngineLost as error:
            logger.error("the engine is lost: %s", error)
