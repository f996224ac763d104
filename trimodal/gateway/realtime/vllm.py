"""Speaks vLLM's realtime dialect: 16 kHz PCM in, transcription.delta and transcription.done out.

session.update {model}, input_audio_buffer.commit: the audio that was appended and all that follows is heard,
until input_audio_buffer.commit {final: true}; then transcription.done. Ours: session.update may have
`tentative`, and transcription.tentative tells words that may still change, transcription.corrected those that
have changed.
"""

from __future__ import annotations

import asyncio
from contextlib import aclosing

from trimodal.audio.values import SAMPLE_RATE
from trimodal.client.client import Client
from trimodal.gateway.access import Caller, check_model
from trimodal.gateway.errors import ApiError, as_api_error, invalid
from trimodal.gateway.media import spoken_model
from trimodal.gateway.realtime.events import Event, end_where_fatal, unknown_event
from trimodal.gateway.realtime.hearing.decoder import Decoder, audio_bytes
from trimodal.gateway.realtime.hearing.turn import HELD_S, SPEECH, AudioTurn, TurnText
from trimodal.gateway.realtime.outbox import Outbox


class VllmDialect:
    """One session's: `begun` once it has taken audio or text, `busy` while something asked for goes on."""

    def __init__(self, client: Client, caller: Caller, outbox: Outbox) -> None:
        self._client = client
        self._caller = caller
        self._outbox = outbox
        self._decoder = Decoder()
        self.seconds = 0.0  # of audio that was sent
        self._validated = False
        self._tentative = False
        self._admitted = False  # the server took a turn: it takes the session's later ones
        self._turn = AudioTurn(client, {})  # what is appended now
        self._started = False  # whether that turn is heard
        self._task: asyncio.Task[None] | None = None  # hears the turn that was started last
        self._hearing: set[asyncio.Task[None]] = set()  # it, and those before it

    @property
    def begun(self) -> bool:
        return self._task is not None or self._turn.samples > 0

    @property
    def busy(self) -> bool:
        goes_on = self._started and self._task in self._hearing
        return len(self._hearing) > goes_on

    async def handle(self, event: Event) -> None:
        """Does what an event asks for. Raises: ApiError, RequestError, TransportError."""
        kind = event["type"]
        if kind == "input_audio_buffer.append":
            await self._append(audio_bytes(event.get("audio")))
        elif kind == "input_audio_buffer.commit":
            self._commit(event.get("final", False))
        elif kind == "session.update":
            self._update(event.get("model"), event.get("tentative", self._tentative))
        else:
            raise unknown_event(
                event, "session.update, input_audio_buffer.append and input_audio_buffer.commit"
            )

    def tell(self, error: ApiError, cause: str | None = None) -> None:
        self._outbox.put("error", error=str(error), code=error.code or "processing_error")

    async def aclose(self) -> None:
        for task in self._hearing:
            task.cancel()
        if self._hearing:
            await asyncio.wait(self._hearing)

    def _update(self, model: object, tentative: object) -> None:
        if not isinstance(model, str) or spoken_model(self._caller.named(model)) != SPEECH:
            raise invalid(
                f"model is {model!r:.64}: '{SPEECH}' is served here", status=404, code="model_not_found"
            )
        if not isinstance(tentative, bool):
            raise invalid("tentative: true or false is needed")
        check_model(self._caller, SPEECH)
        self._validated, self._tentative = True, tentative

    async def _append(self, data: bytes) -> None:
        samples = self._decoder(data)
        if self._turn.full and not self._started:
            raise invalid(
                f"audio: {HELD_S:g} s wait already: input_audio_buffer.commit has them heard",
                code="buffer_full",
            )
        self.seconds += len(samples) / SAMPLE_RATE
        await self._turn.put(samples)

    def _commit(self, final: object) -> None:
        if not isinstance(final, bool):
            raise invalid("final: true or false is needed")
        if not self._validated:
            raise ApiError(400, "send session.update with the model first", code="model_not_validated")
        if final:
            self._turn.end()
        elif not self._started:
            self._started = True
            self._task = asyncio.ensure_future(self._hear(self._turn, self._task))
            self._hearing.add(self._task)
            self._task.add_done_callback(self._hearing.discard)
        elif self._task is not None and self._task.done():  # it failed: this begins another
            self._begin()
            self._commit(final)
        if self._started and self._turn.ended:
            self._begin()

    def _begin(self) -> None:
        self._turn, self._started = AudioTurn(self._client, {"admitted": self._admitted}), False

    async def _hear(self, turn: AudioTurn, before: asyncio.Task[None] | None) -> None:
        """Tells what is heard in a turn, after the one before it."""
        if before is not None:
            await asyncio.wait((before,))
        transcript = TurnText()
        try:
            async with aclosing(turn.updates()) as updates:
                async for update in updates:
                    self._admitted = True
                    transcript.add(update)
                    for kind, fields in transcript.news(update, tentative=self._tentative):
                        self._outbox.put(f"transcription.{kind}", **fields)
            # vLLM counts tokens here, or says null; Whisper's are not known in a live stream.
            self._outbox.put("transcription.done", text=transcript.text, usage=None, seconds=turn.seconds)
        except Exception as error:
            self.tell(as_api_error(error, self._caller.request_id))
            end_where_fatal(self._outbox, error)
