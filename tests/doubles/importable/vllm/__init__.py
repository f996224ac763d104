"""A stand-in for vLLM in a process of its own: a spawned core says the prompt again, a token every few ms.

It has the shape that matters there (asyncio in front, a child that holds the "GPU", which
vLLM's own front notices only by its `errored`); names and signatures are held by tests/typings/vllm-0.33.
"""

import asyncio
import enum
import multiprocessing
import os
import sys
import threading
import time
from types import ModuleType, SimpleNamespace

__version__ = "0.33.0"


class RequestOutputKind(enum.Enum):
    DELTA = 1


class AsyncEngineArgs(SimpleNamespace):
    pass


class SamplingParams(SimpleNamespace):
    pass


class StatLoggerBase:
    pass


def core(connection, seconds=0.004):
    """The child: takes (id, prompt, max_tokens) or (id, None, 0) for an abort; says (id, token, finished)."""
    running = {}
    while True:
        while connection.poll(seconds if running else None):
            id, prompt, count = connection.recv()
            running.pop(id, None)
            if prompt is not None:
                running[id] = [iter(prompt * count), count]
        for id, one in list(running.items()):
            one[1] -= 1
            connection.send((id, next(one[0]), one[1] == 0, len(running)))
            if one[1] == 0:
                del running[id]
        time.sleep(seconds)


class AsyncLLM:
    @classmethod
    def from_engine_args(cls, arguments, stat_loggers):
        return cls(arguments, [factory(None, 0) for factory in stat_loggers])

    def __init__(self, arguments, loggers):
        assert os.environ["VLLM_WORKER_MULTIPROC_METHOD"] == "spawn"
        self._loggers, self._lines, self._loop = loggers, {}, asyncio.get_running_loop()
        spawn = multiprocessing.get_context("spawn")
        self._connection, theirs = spawn.Pipe()
        self._core = spawn.Process(target=core, args=(theirs,))
        self._core.start()
        theirs.close()
        threading.Thread(target=self._read, daemon=True).start()
        length = SimpleNamespace(max_model_len=arguments.max_model_len)
        cache = SimpleNamespace(block_size=16, num_gpu_blocks=64, kv_cache_size_tokens=1024)
        self.vllm_config = SimpleNamespace(model_config=length, cache_config=cache)

    @property
    def errored(self):
        return not self._core.is_alive()

    async def generate(self, prompt, sampling_params, request_id):
        line = self._lines[request_id] = asyncio.Queue()
        finished = False
        self._connection.send((request_id, prompt["prompt_token_ids"], sampling_params.max_tokens))
        try:
            while not finished:
                if (item := await line.get()) is None:
                    raise RuntimeError("EngineCore encountered an issue")
                token, finished = item
                reason = "length" if finished else None
                completion = SimpleNamespace(token_ids=[token], logprobs=None, finish_reason=reason)
                yield SimpleNamespace(outputs=[completion], num_cached_tokens=0)
        finally:
            del self._lines[request_id]
            if not finished and not self.errored:
                self._connection.send((request_id, None, 0))

    def shutdown(self):
        self._core.kill()
        self._core.join()

    def _read(self):
        while True:
            try:
                id, token, finished, running = self._connection.recv()
            except (EOFError, OSError):
                self._core.join()
                id, token, finished, running = None, None, True, 0
            for one in self._loggers:
                one.record(SimpleNamespace(kv_cache_usage=running / 8), None)
            self._loop.call_soon_threadsafe(self._say, id, (token, finished))
            if id is None:
                return

    def _say(self, id, item):
        for name, line in self._lines.items():
            if id is None or name == id:
                line.put_nowait(None if id is None else item)


for name, members in {
    "sampling_params": (RequestOutputKind, SamplingParams),
    "v1": (),
    "v1.engine": (),
    "v1.engine.async_llm": (AsyncLLM,),
    "v1.metrics": (),
    "v1.metrics.loggers": (StatLoggerBase,),
}.items():
    module = ModuleType(f"vllm.{name}")
    module.__path__ = []
    vars(module).update({member.__name__: member for member in members})
    sys.modules[module.__name__] = module
