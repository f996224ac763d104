import pytest

from trimodal.audio.languages import CODES, is_language, language_code


@pytest.mark.parametrize(
    ("named", "code"),
    [
        ("en", "en"),
        ("EN", "en"),
        ("en-US", "en"),
        ("pt_BR", "pt"),
        ("English", "en"),
        ("haitian creole", "ht"),
        ("zh-Hans-CN", "zh"),
        ("haw", "haw"),
        ("", ""),
        ("klingon", "klingon"),
        ("xx-YY", "xx-YY"),
    ],
)
def test_the_ways_to_name_a_language(named, code):
    assert language_code(named) == code
    assert is_language(named) == (code in CODES.values())


def test_the_codes_are_fasterwhispers():
    tokenizer = pytest.importorskip("faster_whisper.tokenizer")
    assert set(CODES.values()) == set(tokenizer._LANGUAGE_CODES)
