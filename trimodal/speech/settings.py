"""Settings of the two speech models, read from their config.pbtxt `parameters`."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BeforeValidator, Field

from trimodal.audio.values import Delay, PolicyName
from trimodal.settings import EngineSettings, Settings
from trimodal.speech.values import MAX_TEMPERATURES, MAX_WINDOW_S

Temperatures = Annotated[
    tuple[Annotated[float, Field(ge=0, le=1)], ...],
    BeforeValidator(lambda given: given.split(",") if isinstance(given, str) else given),
    Field(
        min_length=1, max_length=MAX_TEMPERATURES, description="tried in turn until a decoding is not doubted"
    ),
]


class RecogniseSettings(EngineSettings):
    """speech_recognize: which artefact, opened by which engine, and which results are believed."""

    artefact: str = Field(min_length=1, description="artefact directory, absolute or from the version's")
    engine: Literal["ctranslate2", "tensorrt", "fake"] = "ctranslate2"
    # All that Triton gathered, at each temperature: a large Whisper may take a minute of a slow CPU for one.
    stall_timeout_s: Annotated[float, Field(ge=0, le=86_400)] = 1200
    device: Literal["cpu", "cuda"] = "cpu"
    # Of the engine ctranslate2 alone.
    encoder: Literal["auto", "ctranslate2", "openvino"] = Field(
        "auto", description="openvino where the processor has AMX and weights are INT8, else ctranslate2"
    )
    decoder: Literal["auto", "ctranslate2", "openvino"] = Field(
        "auto", description="the same, of windows of which some text is known, as live ones"
    )
    max_batch_windows: Annotated[int, Field(ge=1, le=256, description="of one run of the engine")] = 8
    beam_size: Annotated[int, Field(ge=1, le=10, description="1 is greedy")] = 1
    language: str = Field("", description="of windows that name none; empty: the only one, or detected")
    precision: str = Field("", description="that the artefact must have, as fp16; empty: any")
    checkpoint_sha256: str = Field("", pattern="^[0-9a-f]*$", description="checkpoint's, or how it begins")
    # Guards: the field's names and defaults (openai-whisper, faster-whisper).
    no_speech_threshold: Annotated[float, Field(ge=0, le=1)] = 0.6
    log_prob_threshold: Annotated[float, Field(le=0)] = -1.0
    compression_ratio_threshold: Annotated[float, Field(ge=1)] = 2.4
    temperatures: Temperatures = (0.0, 0.2, 0.4, 0.6, 0.8, 1.0)
    # Of the fake engine alone.
    fake_batch_ms: Annotated[float, Field(ge=0)] = 20.0
    fake_window_ms: Annotated[float, Field(ge=0)] = 5.0


class VoiceActivity(Settings):
    """What is taken for speech, and which pause ends it: names of Silero's, as faster-whisper has them."""

    threshold: float = Field(0.45, ge=0, le=1, description="probability from which on a frame is speech")
    neg_threshold: Annotated[
        Annotated[float, Field(ge=0, le=1)] | None,
        BeforeValidator(lambda given: None if given == "" else given),
        Field(description="below it a frame is silence; empty: threshold less 0.15"),
    ] = None
    min_speech_duration_ms: float = Field(96, ge=0, le=10_000, description="shorter is a click")
    min_silence_duration_ms: float = Field(500, ge=100, le=10_000, description="silence that ends a segment")
    speech_pad_ms: float = Field(400, ge=0, le=5_000, description="heard around speech: onsets are soft")
    max_speech_duration_s: float = Field(10, ge=2, le=MAX_WINDOW_S, description="heard at once")


class ListeningSettings(VoiceActivity):
    """What a stream may choose in place of the model's settings; here the names are faster-whisper's."""

    hallucination_silence_threshold: float = Field(
        0,
        ge=0,
        le=30,
        description="seconds of silence around words that look made up, which drop them; 0: stay",
    )
    condition_on_previous_text: bool = Field(False, description="Whisper gets the words before as prompt")
    language_detection_threshold: float = Field(0.5, ge=0, le=1, description="a likelier language is kept")
    language_detection_segments: int = Field(
        0, ge=0, le=100, description="windows after which the language of most is kept; 0: until one is sure"
    )


class SpeechSettings(ListeningSettings):
    """speech: how streams are cut into windows, when words are final, and how many streams are taken."""

    recognizer: str = Field("speech_recognize", min_length=1, description="model that gets the windows")
    recognizer_wait_s: float = Field(60.0, ge=0, le=600, description="for one that is being loaded")
    policy: PolicyName = "edge"
    delay: Delay = Field(
        "medium", description="of policy edge: how far words lie behind before they are final"
    )
    step_s: Annotated[float, Field(ge=0.1, le=30, description="new audio that is waited for")] = 0.5
    max_step_s: Annotated[float, Field(ge=0.1, le=30, description="to which it widens when behind")] = 5.0
    file_window_s: Annotated[float, Field(ge=5, le=MAX_WINDOW_S, description="of policy file")] = 30.0
    live_temperatures: Temperatures = (0.0, 0.4)
    vad: Literal["silero", "energy"] = "silero"
    max_streams: Annotated[int, Field(ge=1, le=4096)] = 256
    max_windows_in_flight: Annotated[int, Field(ge=1, le=64, description="recogniser calls at once")] = 16
    idle_s: Annotated[float, Field(ge=0.1, le=3600, description="silence that ends a stream")] = 60.0
    refuse_lag_s: Annotated[float, Field(ge=1, description="a stream is behind by this: no new ones")] = 4.0
    max_pending_s: float = Field(60.0, ge=5, le=600, description="audio not heard: above it, answers wait")
