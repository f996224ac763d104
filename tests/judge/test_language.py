"""Which questions the judge can read, by their small words."""

import pytest

from trimodal.judge.language import is_foreign

ENGLISH = (
    "How do I reset my password?", "reset password", "What is the population of Los Angeles?", "grep -v",
    "Who is Beyoncé?", "How do I die cut a card?", "Is the café open?", "", "42", "Where can I go in a month",
)  # fmt: skip
GERMAN = (
    "Wie setze ich mein Passwort zurück?", "Was ist ein Lambda in Python?", "Wann ist die Bank offen?",
    "Kann ich morgen zum Arzt?",
)  # fmt: skip
SPANISH = (
    "¿Cómo restablezco mi contraseña?", "Que es una lambda", "cuando abre el banco",
    "¿Dónde está la farmacia?",
)  # fmt: skip
OTHERS = (
    "Comment est-ce que je peux changer mon mot de passe ?", "Come posso cambiare la mia password?",
    "Hoe kan ik mijn wachtwoord wijzigen?", "Как сменить пароль?", "パスワードを変更する", "我怎么改密码",
)  # fmt: skip


@pytest.mark.parametrize("text", ENGLISH)
def test_english_is_read(text):
    assert not is_foreign(text, ("en",))


@pytest.mark.parametrize("text", [*GERMAN, *SPANISH, *OTHERS])
def test_other_languages_are_not(text):
    assert is_foreign(text, ("en",))


@pytest.mark.parametrize("text", GERMAN)
def test_a_judge_of_two_languages_reads_both(text):
    assert not is_foreign(text, ("en", "de")) or not text.isascii()
    assert is_foreign(text, ("en", "es"))
