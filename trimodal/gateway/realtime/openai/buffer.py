"""Takes a session's audio in, turn by turn: input_audio_buffer.* and the words that are heard."""

from __future__ import annotations

import asyncio
import logging
import math
from contextlib import aclosing
from dataclasses import dataclass, field

import numpy as np

from trimodal.audio.values import SAMPLE_RATE, Samples
from trimodal.client.client import Client
from trimodal.client.errors import TransportError
from trimodal.client.options import Options
from trimodal.client.streams.live import Listening
from trimodal.errors import RequestError
from trimodal.gateway.access import Caller, check_model
from trimodal.gateway.errors import ApiError, as_api_error, invalid
from trimodal.gateway.openai.models import LLM
from trimodal.gateway.realtime.events import end_where_fatal, put_error
from trimodal.gateway.realtime.hearing.completeness import is_complete
from trimodal.gateway.realtime.hearing.decoder import Decoder
from trimodal.gateway.realtime.hearing.detection import Paused, Resumed, Speech, Started, TurnDetector
from trimodal.gateway.realtime.hearing.endpoint import LONGEST_S, UNKNOWN_S, is_backchannel, silence_s, spoken
from trimodal.gateway.realtime.hearing.turn import AudioTurn, TurnText
from trimodal.gateway.realtime.openai.config import Config, ConversationSession, SemanticVad, ServerVad
from trimodal.gateway.realtime.openai.conversation import Conversation
from trimodal.gateway.realtime.openai.items import new_id
from trimodal.gateway.realtime.openai.responses import Responses
from trimodal.gateway.realtime.outbox import Outbox

logger = logging.getLogger(__name__)
JUDGED = 8 * SAMPLE_RATE  # of a turn's audio
JUDGED_WITHIN_S = 0.5
LIKELY_S = 1.0  # a turn that ends after a shorter silence is likely over in a pause
INTERRUPT_AFTER_S = 0.6  # of speech that has no words but "mhm" and "yeah"
LATE_S = 0.5  # audio that is late by so much more than the silence that ends a turn is taken for it


@dataclass
class _Utterance:
    """One turn: the item that it becomes, its audio and words, and the task that tells them.

    Attributes:
        recent: the end of its audio, which is judged.
        paused: nobody speaks at the moment, and its sound has been judged.
        finished: how probable it is by that audio that the speaker has finished; None: not known.
        read: the words that the language model was asked about last.
        complete: whether they are a whole sentence; None: not known.
        over: it may be, as far as is known.
        listening: it began in an answer, which it has not interrupted: "mhm" would not.
        reading: asks the language model about its words.
    """

    item_id: str
    turn: AudioTurn
    transcript: TurnText
    recent: Samples = field(default_factory=lambda: np.zeros(0, np.float32))
    paused: bool = False
    finished: float | None = None
    read: tuple[str, ...] = ()
    complete: bool | None = None
    over: bool = False
    listening: bool = False
    reading: asyncio.Task[None] | None = None
    task: asyncio.Task[None] = field(init=False)


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
        # On the loop's clock: when the audio began to be spoken, had there been no time without any, and when
        # all that came has been.
        self._began, self._heard_by = 0.0, -math.inf
        self._quiet: asyncio.TimerHandle | None = None  # ends a turn of which no more audio comes
        self._open: _Utterance | None = None
        self._telling: set[asyncio.Task[None]] = set()
        self._decoder = Decoder()
        self._detector: TurnDetector | None = None
        self._vad: ServerVad | SemanticVad | None = None
        self.begun = False
        self._config = config
        self.configure(config)

    @property
    def seconds(self) -> float:
        """Of audio that came."""
        return self._samples / SAMPLE_RATE

    @property
    def busy(self) -> bool:
        """Whether words of a turn that is over are still to come, or its answer, after the next turn."""
        owed = self._responses.waiting and self._answers is not None
        return owed or len(self._telling) > (self._open is not None and not self._open.task.done())

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
                speaking = self._open is not None
                self._detector = TurnDetector(*_bounds(vad), self._samples, speaking=speaking)
        self._config = config

    async def append(self, data: bytes) -> None:
        """Hears audio; waits while the server is behind. Raises: ApiError."""
        pieces = self._decoder.pieces(data)
        self._wait_on()
        loop, before = asyncio.get_running_loop(), self._samples
        if loop.time() > self._heard_by + LATE_S:
            self._began = loop.time() - before / SAMPLE_RATE
        for number, samples in enumerate(pieces):
            if number:  # others have their turn
                await asyncio.sleep(0)
            await self._hear(samples)
        self.begun = True
        # Audio that came ahead of its time, as a file does, is late only when it would have been spoken.
        self._heard_by = max(
            loop.time() + (self._samples - before) / SAMPLE_RATE,
            self._began + self._samples / SAMPLE_RATE,
        )
        self._wait()

    async def commit(self) -> None:
        """Ends the turn. Raises: ApiError where there is none."""
        self._wait_on()
        rest = self._decoder.flush()
        if self._open is not None:  # what the filter held back belongs to the turn that ends
            await self._hear(rest)
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
            _stop_reading(utterance)
            utterance.task.cancel()
            await asyncio.wait((utterance.task,))
            self._pass_over()
        self._outbox.put("input_audio_buffer.cleared")

    async def aclose(self) -> None:
        """Ends all that is heard."""
        self._wait_on()
        if self._open is not None:
            _stop_reading(self._open)
        for task in self._telling:
            task.cancel()
        if self._telling:
            await asyncio.wait(self._telling)

    def _wait(self) -> None:
        """Ends the turn that goes on unless audio comes in time."""
        self._wait_on()
        if self._detector is not None and self._detector.speaking:
            late = self._heard_by + self._detector.silence_s + LATE_S
            self._quiet = asyncio.get_running_loop().call_at(late, self._stop)

    def _wait_on(self) -> None:
        if self._quiet is not None:
            self._quiet.cancel()
            self._quiet = None

    def _stop(self) -> None:
        """Ends a turn as after a silence: a microphone that is muted sends none."""
        if self._open is not None and self._detector is not None and self._detector.speaking:
            self._detector.cut()
            self._tell_speech("stopped", self._open, audio_end_ms=_ms(self._samples))
            self._commit()

    async def _hear(self, samples: Samples) -> None:
        begin = self._samples
        self._samples += len(samples)
        if self._detector is None:
            await (self._open or self._start(begin)).turn.put(samples)
            return
        for heard in self._detector.feed(samples):
            if isinstance(heard, Started):
                begun = self._open or self._start(heard.audio)
                self._tell_speech("started", begun, audio_start_ms=_ms(heard.at))
                self._responses.give_up("resumed")
                begun.listening = self._vad is not None and self._vad.interrupt_response
                self._interrupt(begun)
            elif (utterance := self._open) is None:
                continue
            elif isinstance(heard, Speech):
                await utterance.turn.put(heard.samples)
                if isinstance(self._vad, SemanticVad):
                    utterance.recent = np.concatenate((utterance.recent, heard.samples))[-JUDGED:]
                self._interrupt(utterance)
            elif isinstance(heard, Paused):
                await self._pause(utterance, self._detector)
            elif isinstance(heard, Resumed):
                utterance.paused = utterance.over = False
                self._responses.give_up("resumed")
            else:
                self._tell_speech("stopped", utterance, audio_end_ms=_ms(heard.at))
                self._commit()

    def _interrupt(self, utterance: _Utterance) -> None:
        """Cancels the answer that runs once the turn is more than the "mhm" of somebody who listens."""
        if not utterance.listening or self._vad is None:
            return
        lasts = utterance is self._open and self._detector is not None and self._detector.spoken_s
        if lasts >= INTERRUPT_AFTER_S or not is_backchannel(utterance.transcript.whole):
            utterance.listening = False
            self._responses.cancel("turn_detected")

    async def _pause(self, utterance: _Utterance, detector: TurnDetector) -> None:
        """Finds out whether the turn sounds over, and what follows from it."""
        self._read(utterance)  # meanwhile
        if isinstance(self._vad, SemanticVad):
            utterance.finished = await self._finished(utterance)
        utterance.paused = True
        self._weigh(utterance, detector)

    def _weigh(self, utterance: _Utterance, detector: TurnDetector) -> None:
        """Says how long a silence ends the turn; begins its answer where that is short."""
        self._read(utterance)
        if isinstance(self._vad, SemanticVad):
            words, eagerness = utterance.transcript.whole, self._vad.eagerness
            detector.end_after(silence_s(utterance.finished, utterance.complete, words, eagerness))
            if self._quiet is not None:  # else audio is being taken in
                self._wait()
        was_over, utterance.over = utterance.over, detector.silence_s <= LIKELY_S
        if was_over and not utterance.over:
            self._responses.give_up("changed")
        self._foresee(utterance)

    def _read(self, utterance: _Utterance) -> None:
        """Has the language model say whether the words are a whole sentence."""
        words, semantic = utterance.transcript.whole, isinstance(self._vad, SemanticVad)
        if semantic and self._answers is not None and spoken(words) != utterance.read:
            utterance.read = spoken(words)
            if utterance.complete:  # what was a part of a sentence may be one still
                utterance.complete = None
            _stop_reading(utterance)
            utterance.reading = asyncio.ensure_future(self._judge_words(utterance, words))

    async def _judge_words(self, utterance: _Utterance, words: str) -> None:
        complete: bool | None
        try:
            check_model(self._caller, LLM)
            complete = await is_complete(self._client, LLM, words, self._caller.terms(Options()))
        except (ApiError, RequestError, TransportError) as error:
            logger.debug("semantic_vad: the words of a turn are not judged: %s", error)
            complete = None
        utterance.complete = complete
        if utterance.paused and self._detector is not None:
            self._weigh(utterance, self._detector)

    async def _finished(self, utterance: _Utterance) -> float | None:
        """How probable it is that the speaker has finished; None: the model did not answer in time."""
        try:
            return await self._client.finished(utterance.recent, timeout=JUDGED_WITHIN_S)
        except (RequestError, TransportError) as error:
            logger.warning("semantic_vad: a turn ends after %g s of silence: %s", UNKNOWN_S, error)
            return None

    def _foresee(self, utterance: _Utterance) -> None:
        """Begins the answer to a turn that may be over, on the words so far."""
        goes_on = self._open is not None and self._open is not utterance
        failed = utterance.task.done()
        if utterance.over and not goes_on and not failed and self._answers is not None:
            self._responses.foresee(self._answers, utterance.transcript.whole)

    @property
    def _answers(self) -> ConversationSession | None:
        """What turns are answered by, if they are."""
        answering = self._vad is not None and self._vad.create_response
        return self._config if answering and isinstance(self._config, ConversationSession) else None

    def _tell_speech(self, what: str, utterance: _Utterance, **at: int) -> None:
        self._outbox.put(f"input_audio_buffer.speech_{what}", item_id=utterance.item_id, **at)

    def _start(self, at: int) -> _Utterance:
        wanted = self._config.audio.input.transcription
        listening: Listening = {} if wanted is None else wanted.listening
        listening["admitted"] = self._admitted
        identity, turn = new_id("item"), AudioTurn(self._client, listening)
        shown, tentative = wanted is not None, self._config.tentative
        utterance = self._open = _Utterance(identity, turn, TurnText(at / SAMPLE_RATE))
        utterance.task = asyncio.ensure_future(self._tell(utterance, shown=shown, tentative=tentative))
        self._telling.add(utterance.task)
        utterance.task.add_done_callback(self._telling.discard)
        return utterance

    def _commit(self) -> None:
        assert self._open is not None
        utterance, self._open = self._open, None
        _stop_reading(utterance)
        previous = self._conversation.last_id
        self._outbox.put("input_audio_buffer.committed", item_id=utterance.item_id, previous_item_id=previous)
        self._conversation.add_speech(utterance.item_id)
        utterance.turn.end()
        if utterance.task.done():  # it failed before, and the client knows
            self._conversation.heard(utterance.item_id, "")
            self._pass_over()

    def _pass_over(self) -> None:
        """Goes on after a turn that is not answered: perhaps the one before it is to be answered still."""
        self._responses.give_up("dropped")
        if self._open is None and self._answers is not None:
            self._responses.go_on()

    async def _tell(self, utterance: _Utterance, *, shown: bool, tentative: bool) -> None:
        """Tells the words of a turn until its end, then has them answered."""
        identity, turn, transcript = utterance.item_id, utterance.turn, utterance.transcript
        item = {"item_id": identity, "content_index": 0}
        kind = "conversation.item.input_audio_transcription"
        try:
            async with aclosing(turn.updates()) as updates:
                async for update in updates:
                    self._admitted = True
                    transcript.add(update)
                    self._interrupt(utterance)
                    detector = self._detector if utterance is self._open else None
                    if detector is not None and utterance.paused:
                        self._weigh(utterance, detector)
                    elif detector is not None and detector.paused:  # its sound is being judged
                        self._read(utterance)
                    elif not update.final:
                        self._foresee(utterance)
                    for event, fields in transcript.news(update, tentative=tentative) if shown else ():
                        self._outbox.put(f"{kind}.{event}", **item, **fields)
        except Exception as error:
            failure = as_api_error(error, self._caller.request_id)
            self._outbox.put(f"{kind}.failed", **item, error=failure.body["error"])
            put_error(self._outbox, failure)
            end_where_fatal(self._outbox, error)
            self._conversation.heard(identity, "")
            _stop_reading(utterance)
            self._pass_over()
            return
        if shown:
            usage = {"type": "duration", "seconds": round(turn.seconds, 3)}
            self._outbox.put(f"{kind}.completed", **item, transcript=transcript.text, usage=usage)
        self._conversation.heard(identity, transcript.text)
        only_listened = utterance.listening and self._responses.active
        if transcript.text and not only_listened and (config := self._answers) is not None:
            # Where the next has begun both are answered together.
            together = self._open is not None and self._vad is not None and self._vad.interrupt_response
            self._responses.answer(config, later=together)
        else:
            self._pass_over()


def _stop_reading(utterance: _Utterance) -> None:
    if utterance.reading is not None:
        utterance.reading.cancel()


def _bounds(vad: ServerVad | SemanticVad) -> tuple[float, float, float]:
    """Threshold, seconds before speech, and of the silence that ends a turn."""
    if isinstance(vad, SemanticVad):
        return 0.5, 0.3, LONGEST_S[vad.eagerness]
    return vad.threshold, vad.prefix_padding_ms / 1e3, vad.silence_duration_ms / 1e3


def _ms(samples: int) -> int:
    return samples * 1000 // SAMPLE_RATE
