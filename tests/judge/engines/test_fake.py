import pytest

from trimodal.judge.engines.fake import FakeJudge


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("what is a lambda?", "a lambda is what", 1.0),
        ("a b c", "a b d", 0.5),
        ("a", "b", 0.0),
        ("?", "!", 0.0),
    ],
)
def test_the_share_of_words_in_common(one, other, same):
    assert FakeJudge().judge([(one, other), (other, one)]).tolist() == [same, same]
