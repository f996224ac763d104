"""Makes the gateway's ASGI application: routes, error answers, limits.

A handler checks the request, asks for the caller's quota and returns the answer that does the work; nothing
is sent to Triton before that. The paths are those of OpenAI's API, and two of our own:
/v1/images/classifications and /ready.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import partial
from typing import Annotated, Any, Literal

from fastapi import FastAPI, Query, Request
from fastapi.exceptions import RequestValidationError
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from python_multipart.multipart import parse_options_header
from starlette.datastructures import UploadFile
from starlette.exceptions import HTTPException
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse, Response

from trimodal import logs
from trimodal.client.client import Client
from trimodal.client.transports.base import Timeouts
from trimodal.errors import TrimodalError
from trimodal.gateway.access import Access, Caller, check_model, check_operator, request_id
from trimodal.gateway.answering import EventAnswer, Terms, WholeAnswer
from trimodal.gateway.errors import ApiError, as_api_error, invalid_body, unsupported
from trimodal.gateway.keys import ANYBODY
from trimodal.gateway.limits import BodyLimits, OriginCheck
from trimodal.gateway.media import spoken_model
from trimodal.gateway.metrics import GatewayMetrics, Measured
from trimodal.gateway.openai.audio import Task, Transcription, TranscriptionRequest, read_form
from trimodal.gateway.openai.chat import Chat, Completion
from trimodal.gateway.openai.conversation import FindingsCache
from trimodal.gateway.openai.fields import IGNORED_HEADER, Body, ModelBody, take_ignored, unheld
from trimodal.gateway.openai.models import AdapterRequest, ModelList, operate
from trimodal.gateway.openai.responses.reply import Reply
from trimodal.gateway.openai.responses.request import ResponseRequest
from trimodal.gateway.openai.responses.store import ResponseStore
from trimodal.gateway.openai.rows import (
    PIECES_AT_ONCE,
    ClassificationRequest,
    EmbeddingRequest,
    classifications,
    embeddings,
)
from trimodal.gateway.openai.schemas import ChatRequest, CompletionRequest, Sampling
from trimodal.gateway.page.serving import add_page
from trimodal.gateway.quota import Cost
from trimodal.gateway.realtime.openai.early import EarlyBudget
from trimodal.gateway.realtime.route import add_realtime
from trimodal.gateway.realtime.session import Sessions
from trimodal.gateway.settings import GatewaySettings
from trimodal.gateway.upstreams.pool import Upstreams
from trimodal.settings import shorten

PendingAnswer = Chat | Completion | Reply | Transcription


class Gateway:
    """What the handlers share: the servers and a client of them, who may what, and what is counted."""

    def __init__(self, settings: GatewaySettings, upstreams: Upstreams) -> None:
        self.upstreams = upstreams
        self.operator_key = settings.operator_key
        self.timeouts = Timeouts(silence=settings.silence_s)
        self.client = Client(transport=upstreams, timeouts=self.timeouts)
        self.access = Access(settings.keys, settings.model_aliases)
        self.responses = ResponseStore(settings.responses, settings.max_responses)
        self.metrics = GatewayMetrics(upstreams, self.access.quota, self.responses)
        self.findings = FindingsCache()
        self.models = ModelList(self.client)
        self.turns = defaultdict[str, asyncio.Semaphore](lambda: asyncio.Semaphore(PIECES_AT_ONCE))

    async def admit(self, request: Request, asked: ModelBody | TranscriptionRequest) -> Caller:
        """Who asks for this model, whose own name `asked` gets; what is ignored is noted.

        Raises: ApiError 401 (who is it), 403 (not this model), 400 (a header, or a field that is refused).
        """
        caller = self.access.identify(request)
        model = caller.named(asked.model)
        request.state.model = asked.model = model if isinstance(asked, Body) else spoken_model(model)
        check_model(caller, asked.model)
        request.state.ignored = take_ignored(asked) if isinstance(asked, Body) else asked.ignored
        if isinstance(asked, Sampling):
            request.state.ignored += tuple(map(asked.own_name, await unheld(asked.options())))
            if asked.model not in self.upstreams.known and await self.models.is_adapter(asked.model):
                caller = replace(caller, adapter=asked.model)
        return caller

    async def operate(self, request: Request, call: str, **more: Any) -> Response:
        """What an operator wants of the llm, done by every server. Raises: ApiError 403."""
        caller = self.access.identify(request)
        check_operator(caller)
        if caller.key is ANYBODY:
            raise ApiError(
                403, "this gateway asks for no keys: only an operator's may do that", code="no_keys"
            )
        try:
            await operate(self.upstreams.each(), self.operator_key, call, **more)
        finally:
            self.models.forget()
        return JSONResponse({"done": call, **more})

    def client_for(self, caller: Caller) -> Client:
        """The client of the servers whose requests have the caller's id and belong to the caller's trace."""
        return self.client.with_metadata(caller.trace, caller.request_id)

    def terms(self, caller: Caller, cost: Cost | None = None, own_name: Callable[[str], str] = str) -> Terms:
        """An answer that is counted against the caller's limits while it is made, and ends with its key."""
        use = partial(self.access.quota.use, caller.key, cost, counted=True)
        return Terms(caller.request_id, use, partial(self.access.holds, caller.key), own_name)

    def answer(
        self,
        caller: Caller,
        pending: PendingAnswer,
        *,
        stream: bool,
        done: bool = True,
        own_name: Callable[[str], str] = str,
        **whole: str,
    ) -> Response:
        """An answer as a stream of events or in one piece.

        Args:
            done: whether "[DONE]" ends the stream.
            whole: of an answer in one piece, what `WholeAnswer` takes.
        """
        terms = self.terms(caller, pending.cost, own_name)
        if stream:
            return EventAnswer(pending.events, terms, done=done)
        return WholeAnswer(pending.whole, terms, **whole)


def make_app(settings: GatewaySettings, upstreams: Upstreams) -> FastAPI:
    """The application. Raises: SettingsError: the file of keys or the store of responses cannot be used."""
    gateway = Gateway(settings, upstreams)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with gateway.client:
            upstreams.start(gateway.timeouts)
            yield
            await app.state.sessions.aclose()
        gateway.responses.close()

    # The pages of FastAPI's documentation load scripts from elsewhere.
    app = FastAPI(
        title="trimodal gateway", docs_url=None, redoc_url=None, lifespan=lifespan,
        strict_content_type=False,  # see BodyLimits
    )  # fmt: skip
    add_error_answers(app)
    add_generation(app, gateway)
    add_media(app, gateway)
    add_operation(app, gateway)
    add_page(app)
    budget = partial(EarlyBudget, settings.early_waste, gateway.metrics.early)
    app.state.sessions = Sessions(gateway.client, gateway.access, budget)
    add_realtime(app, app.state.sessions, gateway.access)
    # The last one added is the first to see a request; refusals of bodies have CORS headers too.
    app.add_middleware(
        BodyLimits,
        access=gateway.access,
        max_bytes=settings.max_body_bytes,
        timeout_s=settings.body_timeout_s,
    )
    if settings.cors_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(settings.cors_origins),
            allow_methods=["GET", "POST", "DELETE"], allow_headers=["*"],
            # Older browsers take the star for a name.
            expose_headers=["*", "x-request-id", "server-timing", "retry-after", IGNORED_HEADER],
        )  # fmt: skip
    app.add_middleware(OriginCheck, settings=settings)
    app.add_middleware(Measured, metrics=gateway.metrics, log_requests=settings.log_requests)
    return app


def add_error_answers(app: FastAPI) -> None:
    """Gives every failure OpenAI's error shape."""

    async def answer(request: Request, error: Exception) -> Response:
        identity = request_id(request)
        refusal = as_api_error(error, identity)
        return JSONResponse(refusal.body, refusal.status, {**refusal.headers, "x-request-id": identity})

    async def not_found(request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        path = shorten(request.url.path)
        known = {404: f"there is no {path} here", 405: f"{path} does not take {request.method}"}
        message = known.get(error.status_code, str(error.detail))
        return await answer(request, ApiError(error.status_code, message))

    async def invalid(request: Request, error: Exception) -> Response:
        assert isinstance(error, RequestValidationError)
        return await answer(request, invalid_body(error))

    app.add_exception_handler(HTTPException, not_found)
    app.add_exception_handler(RequestValidationError, invalid)
    # What is named here is answered within the middleware, which counts it; Starlette answers an Exception
    # outside of it, and raises it again.
    for kind in (TrimodalError, Exception):
        app.add_exception_handler(kind, answer)


def add_generation(app: FastAPI, gateway: Gateway) -> None:
    """Text: chat, completions, responses, embeddings."""

    @app.post("/v1/chat/completions")
    async def chat(request: Request, body: ChatRequest) -> Response:
        caller = await gateway.admit(request, body)
        pending = Chat(body, gateway.client_for(caller), caller, gateway.findings)
        return gateway.answer(caller, pending, stream=body.stream, own_name=body.own_name)

    @app.post("/v1/completions")
    async def completions(request: Request, body: CompletionRequest) -> Response:
        caller = await gateway.admit(request, body)
        pending = Completion(body, gateway.client_for(caller), caller)
        return gateway.answer(caller, pending, stream=body.stream, own_name=body.own_name)

    @app.post("/v1/responses")
    async def respond(request: Request, body: ResponseRequest) -> Response:
        caller = await gateway.admit(request, body)
        if body.references:
            body.resolve(await gateway.responses.items(caller.key.tenant, body.references))
        client = gateway.client_for(caller)
        pending = Reply(body, client, caller, gateway.findings, gateway.responses)
        return gateway.answer(caller, pending, stream=body.stream, done=False, own_name=body.own_name)

    @app.get("/v1/responses/{id}")
    async def kept_response(request: Request, id: str) -> Any:
        caller = gateway.access.identify(request)
        if request.query_params.get("stream", "false") != "false":
            raise unsupported("stream", "is not supported: a response that is kept comes whole")
        return (await gateway.responses.get(caller.key.tenant, id)).body

    @app.delete("/v1/responses/{id}")
    async def delete_response(request: Request, id: str) -> Any:
        caller = gateway.access.identify(request)
        await gateway.responses.delete(caller.key.tenant, id)
        return {"id": id, "object": "response", "deleted": True}

    @app.post("/v1/embeddings")
    async def embed(request: Request, body: EmbeddingRequest) -> Response:
        caller = await gateway.admit(request, body)
        client, turn = gateway.client_for(caller), gateway.turns[caller.key.hash]
        return WholeAnswer(lambda usage: embeddings(body, client, usage, turn), gateway.terms(caller))


def add_media(app: FastAPI, gateway: Gateway) -> None:
    """Recordings and pictures."""

    async def listen(request: Request, task: Task) -> Response:
        fields, file, name = await _form(request)
        form = read_form(fields, file, task, name)
        caller = await gateway.admit(request, form)
        transcription = Transcription(form, gateway.client_for(caller))
        return gateway.answer(caller, transcription, stream=form.stream, content_type=form.content_type)

    @app.post("/v1/audio/transcriptions")
    async def transcribe(request: Request) -> Response:
        return await listen(request, "transcribe")

    @app.post("/v1/audio/translations")
    async def translate(request: Request) -> Response:
        return await listen(request, "translate")

    @app.post("/v1/images/classifications")
    async def classify(request: Request, body: ClassificationRequest) -> Response:
        caller = await gateway.admit(request, body)
        client, cost = gateway.client_for(caller), Cost(images=len(body.pictures))
        return WholeAnswer(lambda usage: classifications(body, client), gateway.terms(caller, cost))


# Of a form: bytes that are parsed at once, and parts that are no file.
FORM_PIECE, _FIELDS = 65_536, 256


class _FormParser(MultiPartParser):
    """Starlette's; it takes a part without a file name for a text, and then no more than a megabyte of it."""

    spool_max_size = 0  # in memory: the whole body is there, and a temporary directory need not be

    def on_headers_finished(self) -> None:
        part = self._current_part
        options = parse_options_header(part.content_disposition)[1]
        if options.get(b"name") == b"file" and b"filename" not in options:
            part.content_disposition = (part.content_disposition or b"") + b'; filename="recording"'
        super().on_headers_finished()


async def _form(request: Request) -> tuple[dict[str, list[str]], bytes | None, str]:
    """The fields of a form, and contents and name of its `file`. Raises: ApiError 400."""
    body = await request.body()
    kind, _ = parse_options_header(request.headers.get("content-type"))
    # python-multipart 0.0.32, Python 3.10's last, leaves capitals.
    if kind.lower() != b"multipart/form-data" or not body[-FORM_PIECE:].rstrip().endswith(b"--"):
        # Starlette's parser takes what is there, and leaves the file of the part that was cut unclosed.
        raise ApiError(400, "the body is not a whole multipart form")

    async def pieces() -> AsyncGenerator[bytes, None]:
        for at in range(0, len(body), FORM_PIECE):
            await asyncio.sleep(0)  # others have their turn: 30 MB of line ends are parsed for half a second
            yield body[at : at + FORM_PIECE]

    fields: dict[str, list[str]] = {}
    file, file_name = None, ""
    try:
        form = await _FormParser(request.headers, pieces(), max_files=1, max_fields=_FIELDS).parse()
    except MultiPartException as error:
        raise ApiError(400, error.message) from None
    try:
        for name, value in form.multi_items():
            if not isinstance(value, UploadFile):
                fields.setdefault(name, []).append(value)
            elif name == "file":
                file, file_name = await value.read(), value.filename or ""
            else:
                raise ApiError(400, f"{name}: the recording is to be named 'file'", param=name)
    finally:
        await form.close()
    return fields, file, file_name


def add_operation(app: FastAPI, gateway: Gateway) -> None:
    """What there is, and whether it works."""

    @app.head("/v1/models", include_in_schema=False)
    @app.get("/v1/models")
    async def models(request: Request) -> Any:
        entries = await gateway.models.all(gateway.access.identify(request))
        return {"object": "list", "data": entries}

    @app.head("/v1/models/{name:path}", include_in_schema=False)
    @app.get("/v1/models/{name:path}")
    async def model(request: Request, name: str) -> Any:
        return await gateway.models.one(gateway.access.identify(request), name)

    @app.post("/v1/load_lora_adapter")
    async def load_adapter(request: Request, body: AdapterRequest) -> Response:
        return await gateway.operate(request, "load_lora_adapter", lora_name=body.lora_name)

    @app.post("/v1/unload_lora_adapter")
    async def unload_adapter(request: Request, body: AdapterRequest) -> Response:
        return await gateway.operate(request, "unload_lora_adapter", lora_name=body.lora_name)

    @app.post("/sleep")
    async def sleep(request: Request, level: Literal["1", "2"] = "1") -> Response:
        return await gateway.operate(request, "sleep", level=int(level))

    @app.post("/wake_up")
    async def wake_up(request: Request) -> Response:
        return await gateway.operate(request, "wake_up")

    @app.head("/health", include_in_schema=False)
    @app.get("/health")
    async def health() -> Any:
        return {"status": "ok"}

    @app.head("/metrics", include_in_schema=False)
    @app.get("/metrics")
    async def metrics(request: Request) -> Response:
        check_operator(gateway.access.identify(request))
        return Response(generate_latest(gateway.metrics.registry), media_type=CONTENT_TYPE_PLAIN_0_0_4)

    @app.head("/ready", include_in_schema=False)
    @app.get("/ready")
    async def ready(any_model: Annotated[bool, Query(alias="any")] = False) -> Response:
        await gateway.upstreams.looked()
        models = gateway.upstreams.state
        all_ready = bool(models) and all(models.values())
        if not all_ready:
            logs.note(down=",".join(name for name in models if not models[name]))
        versions, routes = gateway.upstreams.versions, gateway.upstreams.routes
        told = {"ready": all_ready, "models": models, "versions": versions, "routes": routes}
        enough = any(models.values()) if any_model else all_ready
        return JSONResponse(told, 200 if enough else 503)
