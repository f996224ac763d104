"""Takes a session's audio in, turn by turn: input_audio_buffer.* and the words that are heard."""

from __future__ import annotations

import asyncio
from contextlib import aclosing
from dataclasses import dataclass

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.client.client import Client
from trimodal.client.streams.live import Listening
from trimodal.gateway.access import Caller
from trimodal.gateway.errors import ApiError, as_api_error, invalid
from trimodal.gateway.realtime.events import end_where_fatal, put_error
from trimodal.gateway.realtime.hearing.decoder import Decoder
from trimodal.gateway.realtime.hearing.detection import Speech, Started, TurnDetector
from trimodal.gateway.realtime.hearing.turn import AudioTurn, TurnText
from trimodal.gateway.realtime.openai.config import Config, ConversationSession, ServerVad
from trimodal.gateway.realtime.openai.conversation import Conversation
from trimodal.gateway.realtime.openai.items import new_id
from trimodal.gateway.realtime.openai.responses import Responses
from trimodal.gateway.realtime.outbox import Outbox

LATE_S = 0.5  # audio that is late by so much more than the silence that ends a turn is taken for it


@dataclass(frozen=True)
class _Utterance:
    """One turn: the item that it becomes, its audio, and the task that tells its words."""

    item_id: str
    turn: AudioTurn
    task: asyncio.Task[None]


class InputBuffer:
    """The audio of one session; its turns become items of the conversation."""

    def __init__(
        self,
        client: Client,
        caller: Caller,
        outbox: Outbox,
        conversation: Conversation,
        responses: Responses,
        config: Config,
    ) -> None:
        self._client = client
        self._caller = caller
        self._outbox = outbox
        self._conversation = conversation
        self._responses = responses
        self._samples = 0  # of the session, at 16 kHz
        self._admitted = False  # the server took a turn: it takes the session's later ones
        self._began = 0.0  # of its first audio, on the loop's clock
        self._quiet: asyncio.TimerHandle | None = None  # ends a turn of which no more audio comes
        self._open: _Utterance | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._decoder = Decoder()
        self._detector: TurnDetector | None = None
        self._vad: ServerVad | None = None
        self.begun = False
        self._config = config
        self.configure(config)

    @property
    def busy(self) -> bool:
        """Whether words of a turn that is over are still to come."""
        return len(self._telling) > (self._open is not None and not self._open.task.done())

    def configure(self, config: Config) -> None:
        """Takes new settings; those of a turn that has begun stay. Raises: ApiError."""
        form, vad = config.audio.input.format, config.audio.input.turn_detection
        if not self.begun:
            self._decoder = Decoder(form.type, form.rate)
        elif form != self._config.audio.input.format:
            name = "session.audio.input.format"
            raise invalid(f"{name} cannot change once audio was sent")
        if vad != self._vad:
            self._vad, self._detector = vad, None
            if vad is not None:
                padding_s, silence_s = vad.prefix_padding_ms / 1e3, vad.silence_duration_ms / 1e3
                speaking = self._open is not None
                self._detector = TurnDetector(
                    vad.threshold, padding_s, silence_s, self._samples, speaking=speaking
                )
        self._config = config

    async def append(self, data: bytes) -> None:
        """Hears audio; waits while the server is behind. Raises: ApiError."""
        self._wait_on()
        loop, before = asyncio.get_running_loop(), self._samples
        if not self.begun:
            self._began = loop.time()
        await self._hear(self._decoder(data))
        self.begun = True
        if self._vad is not None and self._detector is not None and self._detector.speaking:
            # Audio that came ahead of its time, as a file does, is late only when it would have been spoken.
            due = max(
                loop.time() + (self._samples - before) / SAMPLE_RATE,
                self._began + self._samples / SAMPLE_RATE,
            )
            self._quiet = loop.call_at(due + self._vad.silence_duration_ms / 1e3 + LATE_S, self._stop)

    async def commit(self) -> None:
        """Ends the turn. Raises: ApiError where there is none."""
        self._wait_on()
        await self._flush()
        if self._open is None:
            raise ApiError(
                400, "the audio buffer is empty: nothing to commit", code="input_audio_buffer_commit_empty"
            )
        if self._detector is not None:
            self._detector.cut()
        self._commit()

    async def clear(self) -> None:
        """Forgets the turn that goes on."""
        self._wait_on()
        self._decoder.flush()
        if self._detector is not None:
            self._detector.cut()
        if self._open is not None:
            utterance, self._open = self._open, None
            utterance.task.cancel()
            await asyncio.wait((utterance.task,))
        self._outbox.put("input_audio_buffer.cleared")

    async def aclose(self) -> None:
        """Ends all that is heard."""
        self._wait_on()
        tasks = list(self._telling)
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)

    def _wait_on(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()

    def _stop(self) -> None:
        """Ends a turn as after a silence: a microphone that is muted sends none."""
        if self._open is not None and self._detector is not None and self._detector.speaking:
            self._detector.cut()
            self._tell_speech("stopped", self._open, audio_end_ms=_ms(self._samples))
            self._commit()

    async def _flush(self) -> None:
        """Without detection, what the filter holds back belongs to the turn that ends."""
        rest = self._decoder.flush()
        if self._open is not None:
            await self._hear(rest)

    async def _hear(self, samples: Samples) -> None:
        begin = self._samples
        self._samples += len(samples)
        if self._detector is None:
            utterance = self._open or self._start(begin)
            await utterance.turn.put(samples)
            return
        for heard in self._detector.feed(samples):
            if isinstance(heard, Started):
                utterance = self._open or self._start(heard.audio)
                self._tell_speech("started", utterance, audio_start_ms=_ms(heard.at))
                if self._vad is not None and self._vad.interrupt_response:
                    self._responses.cancel("turn_detected")
            elif self._open is not None:
                if isinstance(heard, Speech):
                    await self._open.turn.put(heard.samples)
                else:
                    self._tell_speech("stopped", self._open, audio_end_ms=_ms(heard.at))
                    self._commit()

    def _tell_speech(self, what: str, utterance: _Utterance, **at: int) -> None:
        self._outbox.put(f"input_audio_buffer.speech_{what}", item_id=utterance.item_id, **at)

    def _start(self, at: int) -> _Utterance:
        wanted = self._config.audio.input.transcription
        listening: Listening = {} if wanted is None else wanted.listening
        listening["admitted"] = self._admitted
        identity, turn = new_id("item"), AudioTurn(self._client, listening)
        shown, tentative = wanted is not None, self._config.tentative
        task = asyncio.ensure_future(self._tell(identity, turn, at, shown=shown, tentative=tentative))
        self._telling.add(task)
        task.add_done_callback(self._telling.discard)
        self._open = _Utterance(identity, turn, task)
        return self._open

    def _commit(self) -> None:
        assert self._open is not None
        utterance, self._open = self._open, None
        previous = self._conversation.last_id
        self._outbox.put("input_audio_buffer.committed", item_id=utterance.item_id, previous_item_id=previous)
        self._conversation.add_speech(utterance.item_id)
        utterance.turn.end()
        if utterance.task.done():  # it failed before, and the client knows
            self._conversation.heard(utterance.item_id, "")

    async def _tell(self, identity: str, turn: AudioTurn, at: int, *, shown: bool, tentative: bool) -> None:
        """Tells the words of a turn until its end, then has them answered."""
        transcript = TurnText(at / SAMPLE_RATE)
        item = {"item_id": identity, "content_index": 0}
        kind = "conversation.item.input_audio_transcription"
        try:
            async with aclosing(turn.updates()) as updates:
                async for update in updates:
                    self._admitted = True
                    delta = transcript.add(update)
                    if not shown:
                        continue
                    if delta:
                        self._outbox.put(f"{kind}.delta", **item, delta=delta, words=transcript.words(update))
                    if tentative and (guess := transcript.tentative(update)) is not None:
                        self._outbox.put(f"{kind}.tentative", **item, text=guess)
        except Exception as error:
            failure = as_api_error(error, self._caller.request_id)
            self._outbox.put(f"{kind}.failed", **item, error=failure.body["error"])
            put_error(self._outbox, failure)
            end_where_fatal(self._outbox, error)
            self._conversation.heard(identity, "")
            return
        if shown:
            usage = {"type": "duration", "seconds": round(turn.seconds, 3)}
            self._outbox.put(f"{kind}.completed", **item, transcript=transcript.text, usage=usage)
        self._conversation.heard(identity, transcript.text)
        if transcript.text:
            self._answer()

    def _answer(self) -> None:
        """Answers a turn that was detected, unless the next has begun: then both are answered together."""
        vad, config = self._vad, self._config
        if not isinstance(config, ConversationSession) or vad is None or not vad.create_response:
            return
        if self._open is None or not vad.interrupt_response:
            self._responses.answer(config)


def _ms(samples: int) -> int:
    return samples * 1000 // SAMPLE_RATE
