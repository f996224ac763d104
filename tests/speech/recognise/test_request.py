import numpy as np
import pytest

from trimodal.audio.values import Word
from trimodal.errors import InvalidArgument
from trimodal.speech.recognise.request import Recognised, RecogniseRequest
from trimodal.speech.values import Recognition

LONGEST = 480_000


def request(first=0.0, prompts=None, languages=None, tasks=None):
    windows = np.zeros((1, 320), np.float32)
    windows[0, 0] = first
    return RecogniseRequest(windows, prompts, languages, tasks)


def of_shape(*shape):
    return RecogniseRequest(np.zeros(shape, np.float32))


def test_rows_become_windows_with_their_own_prompt_and_language():
    samples = np.linspace(-1, 1, 640, dtype=np.float32).reshape(2, 320)
    one, two = RecogniseRequest(samples, ["straße".encode(), b""], [b"de", b""]).checked(("en", "de"))
    assert (one.prompt, one.language, two.prompt, two.language) == ("straße", "de", "", "")
    np.testing.assert_array_equal(two.samples, samples[1])
    named = RecogniseRequest(samples, languages=[b"en-US", b"German"]).checked(("en", "de"))
    assert [one.language for one in named] == ["en", "de"]
    both = RecogniseRequest(samples, tasks=[b"translate", b"transcribe"]).checked(("en",))
    assert [one.translate for one in both] == [True, False]


@pytest.mark.parametrize(
    ("refused", "told"),
    [
        (of_shape(1, 0), "window: 0 samples; 1 to 480000 are accepted (30 s at 16000 Hz)"),
        (of_shape(1, LONGEST + 1), "window: 480001 samples; 1 to 480000 are accepted (30 s at 16000 Hz)"),
        (of_shape(0, 5), "window: shape [rows, samples] is needed, got [0, 5]"),
        (of_shape(5), "window: shape [rows, samples] is needed, got [5]"),
        (request(np.nan), "window: sample 0 is nan; FP32 samples are finite, within [-1, 1]"),
        (
            RecogniseRequest(np.float32([[0, 0], [0, 99]])),
            "window[1]: a sample of 99; FP32 samples lie within [-1, 1]",
        ),
        (request(0, [b"caf\xe9"]), "prompt is not valid UTF-8: byte 3 cannot be decoded"),
        (request(0, [b"x" * 1001]), "prompt: 1001 characters; at most 1000 are accepted"),
        (
            RecogniseRequest(np.zeros((1, 320), np.float32), prefixes=[b"x" * 1001]),
            "prefix: 1001 characters; at most 1000 are accepted",
        ),
        (
            RecogniseRequest(np.zeros((1, 320), np.float32), drafts=[b"a", b"b"]),
            "draft: one for each of 1 windows is needed, got 2",
        ),
        (request(0, [b"a", b"b"]), "prompt: one for each of 1 windows is needed, got 2"),
        (request(0, None, []), "language: one for each of 1 windows is needed, got 0"),
        (request(0, None, [b"fr"]), "language: 'fr' is not known (known: en, de)"),
        (request(0, tasks=[b"sing"]), "task: 'sing' is not known (known: transcribe, translate)"),
        (request(0, tasks=[]), "task: one for each of 1 windows is needed, got 0"),
        (request(0, tasks=[b"\xff"]), "task is not valid UTF-8: byte 0 cannot be decoded"),
        (
            RecogniseRequest(np.zeros((1, 320), np.float32), temperatures=[b"0,hot"]),
            "temperatures: '0,hot'; at most 8 numbers from 0 to 1 are taken, as 0,0.2,0.4",
        ),
        (request(0, None, [b"fr-CA"]), "language: 'fr' is not known (known: en, de)"),
        (request(0, None, [b"\xff"]), "language is not valid UTF-8: byte 0 cannot be decoded"),
        (request(0, None, [b"z" * 99_999]), f"language: '{'z' * 16}' is not known (known: en, de)"),
    ],
)
def test_refuses_with_a_sentence_that_names_field_and_limit(refused, told):
    with pytest.raises(InvalidArgument) as error:
        refused.checked(("en", "de"))
    assert str(error.value) == told


def recognized(*texts):
    rows = (
        tuple(Word(f" {word}", at / 4, at / 4 + 0.25, 0.5) for at, word in enumerate(text.split()))
        for text in texts
    )
    return Recognised(
        tuple(Recognition(words, rejected="" if words else "silence") for words in rows), (8,) * 3
    )


def test_tensors_are_rows_padded_to_the_most_words():
    tensors = recognized("one two three", "", "vier").tensors()
    assert tensors["words"].tolist() == [[b" one", b" two", b" three"], [b""] * 3, [b" vier", b"", b""]]
    assert tensors["text"].tolist() == [[b" one two three"], [b""], [b" vier"]]
    assert tensors["word_count"].tolist() == [[3], [0], [1]]
    assert tensors["batch_size"].tolist() == [[8], [8], [8]]
    assert tensors["language_probabilities"].tolist() == [[b"{}"]] * 3
    assert tensors["rejected"].tolist() == [[b""], [b"silence"], [b""]]
    assert tensors["word_starts"].tolist() == [[0, 0.25, 0.5], [0, 0, 0], [0, 0, 0]]
    assert tensors["word_ends"].tolist() == [[0.25, 0.5, 0.75], [0, 0, 0], [0.25, 0, 0]]
    assert tensors["word_probabilities"].tolist() == [[0.5] * 3, [0] * 3, [0.5, 0, 0]]
    assert {name: array.dtype.str for name, array in tensors.items()} == {
        "text": "|O", "words": "|O", "word_starts": "<f4", "word_ends": "<f4", "word_probabilities": "<f4",
        "word_tokens": "|O",
        "word_count": "<i4", "language": "|O", "no_speech_probability": "<f4",
        "average_log_probability": "<f4", "compression_ratio": "<f4", "temperature": "<f4",
        "language_probability": "<f4", "language_probabilities": "|O", "doubted": "|O",
        "rejected": "|O", "batch_size": "<i4",
    }  # fmt: skip
