import json

import pytest

from tests.speech.whisper.vocabulary import LANGUAGES, WORDS, write_tokenizer
from trimodal.speech.whisper.tokens import WhisperTokens


@pytest.fixture(scope="module")
def english(tmp_path_factory):
    directory = tmp_path_factory.mktemp("english")
    write_tokenizer(directory)
    return WhisperTokens(directory, ("en",), multilingual=False)


@pytest.fixture(scope="module")
def multilingual(tmp_path_factory):
    directory = tmp_path_factory.mktemp("multilingual")
    write_tokenizer(directory, languages=LANGUAGES)
    return WhisperTokens(directory, LANGUAGES, multilingual=True)


def spelled(tokens, ids):
    return [tokens._tokenizer.id_to_token(token) for token in ids]


def test_an_english_prompt_has_neither_language_nor_task(english):
    assert spelled(english, english.prompt("en", "", 100)) == ["<|startoftranscript|>", "<|notimestamps|>"]
    assert english.languages == {}


def test_a_multilingual_prompt_names_language_and_task(multilingual):
    prompt = spelled(multilingual, multilingual.prompt("de", " \n", 100))
    assert prompt == ["<|startoftranscript|>", "<|de|>", "<|transcribe|>", "<|notimestamps|>"]
    assert tuple(multilingual.languages) == LANGUAGES
    assert spelled(multilingual, multilingual.start_sequence("de", translate=True))[-1] == "<|translate|>"


def test_what_was_said_before_comes_first(english):
    said = ["<|startofprev|>", "Ġhello", "Ġworld"]
    prompt = spelled(english, english.prompt("en", "hello world", 100))
    assert prompt == [*said, "<|startoftranscript|>", "<|notimestamps|>"]


@pytest.mark.parametrize(
    ("words", "room", "kept"),
    [(9, 100, 9), (63, 100, 63), (64, 100, 64), (71, 100, 64), (300, 223, 216), (50, 20, 20), (3, 0, 0)],
)
def test_of_a_long_prompt_the_last_tokens_are_kept_in_eights(english, words, room, kept):
    said = [WORDS[index % len(WORDS)] for index in range(words)]
    prompt = english.prompt("en", " ".join(said), room)
    assert english.decode(prompt[1:-2]).split() == said[words - kept :]


@pytest.mark.parametrize(
    ("names", "words", "kept"),
    [(3, 0, 0), (3, 5, 5), (3, 300, 213), (13, 100, 99), (20, 61, 61), (220, 300, 3), (223, 300, 0)],
)
def test_the_first_of_several_lines_is_kept_whole(english, names, words, kept):
    first = [WORDS[index % 4] for index in range(names)]
    said = [WORDS[4 + index % 5] for index in range(words)]
    prompt = english.prompt("en", f"{' '.join(first)}\n{' '.join(said)}", 223)
    assert english.decode(prompt[1:-2]).split() == [*first, *said[words - kept :]]


def test_a_first_line_that_has_no_room_is_cut_as_a_lone_one_is(english):
    text = "two " + "one " * 223
    prompt = english.prompt("en", f"{text}\nhello", 223)
    assert english.decode(prompt[1:-2]).split() == ["one"] * 223
    assert len(english.prompt("en", text, 223)) == 1 + 216 + 2
    assert len(english.prompt("en", f"{text}\nhello", 0)) == 2


def test_special_tokens_in_a_prompt_are_text_or_nothing(english):
    ids = english.prompt("en", "hello <|endoftext|> world <|startoftranscript|>", 100)
    assert ids.count(english.start) == 1
    assert english.end not in ids


def test_suppressed_tokens_are_special_and_leave_the_end(multilingual):
    assert set(spelled(multilingual, multilingual.never_made())) == {
        "<|startoftranscript|>", "<|translate|>", "<|transcribe|>", "<|startoflm|>", "<|startofprev|>",
        "<|nospeech|>",
    }  # fmt: skip


@pytest.mark.parametrize(
    ("text", "language", "pieces"),
    [
        (" hello world", "en", [" hello", " world"]),
        (" hello, world.", "en", [" hello", ",", " world", "."]),
        (" naïve café", "en", [" naïve", " café"]),
        (" 你好 世界", "zh", [" ", "你", "好", " ", "世", "界"]),
        ("hello", "en", ["hello"]),
        ("", "en", []),
    ],
)
def test_tokens_make_words(english, text, language, pieces):
    ids = english.encode(text)
    made = english.pieces(ids, language)
    assert [piece for piece, _ in made] == pieces
    assert sum(count for _, count in made) == len(ids)


def test_bytes_that_are_no_character_are_neither_lost_nor_end_the_words(english):
    cut = english.encode("é")[:1]
    ids = [*english.encode(" one"), *cut, *english.encode(" two"), *cut]
    made = english.pieces(ids, "en")
    assert "".join(piece for piece, _ in made) == english.decode(ids) == " one\ufffd two\ufffd"
    assert [count for _, count in made] == [2, 2]


def test_special_tokens_and_times_are_not_text(english):
    ids = [english.no_timestamps + 1, *english.encode(" one"), english.no_timestamps + 60, english.end]
    assert english.decode(english.text_only(ids)) == " one"


def test_a_text_is_neither_cut_nor_padded_as_its_file_asks(tmp_path):
    from tokenizers import Tokenizer

    write_tokenizer(tmp_path)
    file = str(tmp_path / "tokenizer.json")
    asks = Tokenizer.from_file(file)
    asks.enable_truncation(2)
    asks.enable_padding(length=99)
    asks.save(file)
    tokens = WhisperTokens(tmp_path, ("en",), multilingual=False)
    assert spelled(tokens, tokens.encode(" one two three")) == ["Ġone", "Ġtwo", "Ġthree"]


def test_a_vocabulary_without_a_special_token_is_refused(tmp_path):
    from tokenizers import Tokenizer, models

    Tokenizer(models.BPE(vocab={"a": 0}, merges=[])).save(str(tmp_path / "tokenizer.json"))
    with pytest.raises(ValueError, match=r"the tokenizer has no <\|startoftranscript\|>"):
        WhisperTokens(tmp_path, ("en",), multilingual=False)


@pytest.mark.parametrize("typed", [True, False])
@pytest.mark.parametrize("lost", [0, 1])
def test_the_first_merge_that_a_converter_lost_is_known(tmp_path, lost, typed):
    """Systran's multilingual tokenizer.json lacks it: " the" was two tokens, "Ġ" and "the"."""
    pairs = [("Ġ", "t"), ("h", "e"), ("Ġt", "he"), ("t", "h"), ("th", "e")]
    write_tokenizer(tmp_path, words=[], languages=LANGUAGES)
    file = tmp_path / "tokenizer.json"
    held = json.loads(file.read_text())
    vocabulary = held["model"]["vocab"]
    made = ["".join(pair) for pair in pairs]
    numbers = range(len(vocabulary), len(vocabulary) + len(made))
    assert not set(made) & vocabulary.keys()
    held["model"]["vocab"] = vocabulary | dict(zip(made, numbers, strict=True))
    held["model"] |= {"merges": [list(pair) for pair in pairs[lost:]], "ignore_merges": False}
    if not typed:  # as files of old
        del held["model"]["type"]
    for added in held["added_tokens"]:
        added["id"] += len(made)
    file.write_text(json.dumps(held))
    tokens = WhisperTokens(tmp_path, LANGUAGES, multilingual=True)
    assert spelled(tokens, tokens.encode(" the the")) == ["Ġthe", "Ġthe"]
