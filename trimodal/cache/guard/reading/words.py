"""Splits a question into words with one spelling for quotes, contractions and informal writing.

Names, code and figures keep a mark in front (`^redis`, `=json.load`, `#5pm`), so that no rule about plain
words touches them.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Callable, Sequence

from trimodal.cache.guard.lexicon.word_lists import word_set

NAME, CODE, FIGURE = "^", "=", "#"
"""Marks of a proper name, of code, and of what has digits."""
STOP, COMMA = "|", ","
"""Words of their own that stand for the end of a sentence and for a comma."""
MAX_WORDS = 64
MAX_CHARACTERS = 640

_QUOTES = str.maketrans(
    {"’": "'", "‘": "'", "`": " ", "“": '"', "”": '"', "–": " - ", "—": " - ", "…": " ", "−": "-", "×": "x"}
)
_SPELLED = {
    "can't": "can not", "cant": "can not", "cannot": "can not", "won't": "will not", "wont": "will not",
    "ain't": "is not", "shan't": "shall not", "let's": "let us", "im": "i am", "ive": "i have",
    "u": "you", "ur": "your", "r": "are", "pls": "please", "plz": "please", "thx": "thanks", "wat": "what",
    "gonna": "going to", "wanna": "want to", "gotta": "have to", "dunno": "do not know", "b4": "before",
    "w/o": "without", "w/": "with", "vs": "versus", "vs.": "versus", "info": "information", "ok": "okay",
    "e-mail": "email", "e-mails": "emails", "wi-fi": "wifi", "o'clock": "oclock", "&": "and", "etc": "",
    "and/or": "or", "ppl": "people", "thru": "through", "tho": "though", "bc": "because", "cuz": "because",
}  # fmt: skip
_SPELLED |= {
    f"{verb}{negated}": f"{verb} not"
    for verb in word_set("do does did is are was were has have had would could should must need might")
    for negated in ("n't", "nt")
}
_SPELLED |= {
    f"{word}s": f"{word} is" for word in ("what", "how", "where", "who", "when", "why", "that", "there")
}
_VERBS = {"ll": "will", "ve": "have", "re": "are", "d": "would", "m": "am"}
# After these, 's is a verb; after anything else it shows whose something is.
_BEFORE_IS = word_set("what how where who when why that there it he she here which everything")
_NOT_PLURAL = "'s"
_LETTER = re.compile(r"[^\W\d_]")
_LATIN = re.compile(r"[a-zA-Z\u00c0-\u024f]")
_PLAIN = re.compile(r"[a-z\u00e0-\u024f]+")
_CODE = re.compile(r"[a-z]+[A-Z]|_|\(\)|[\w)\]][./\\:@]\w|^[./\\~:@<-]*[./\\~:@<-]\w|[+#*=<>%&|]|\w\[|\\")
_FIGURE = re.compile(
    r"[$£€¥+-]?\d[\d.,:/-]*(?:\s?(?:%|st|nd|rd|th|s|[°º]?[a-zA-Z]{1,6}))?[$£€%°]?|[$£€]\.\d+|\d+'s"
)
_ENDS = re.compile(r"[.?!:;]+[\"')\]]*$")
_AROUND = "\"',;!?()[]{}"


class NotEnglish(ValueError):
    """The text is too long, or has letters that English does not use: it cannot be judged."""


def words(text: str) -> list[str]:
    """Returns the words of `text`: lower case, names, code and figures marked, STOP after each sentence.

    Raises:
        NotEnglish: more than MAX_WORDS words, or a letter beyond the Latin ones.
    """
    if len(text) > MAX_CHARACTERS:
        raise NotEnglish
    text = unicodedata.normalize("NFC", text).translate(_QUOTES)
    chunks = text.split()
    if len(chunks) > MAX_WORDS or any(not _LATIN.match(letter) for letter in _LETTER.findall(text)):
        raise NotEnglish
    # In a headline or a shout, capitals say nothing.
    capitals = sum(chunk.lstrip(_AROUND)[:1].isupper() for chunk in chunks)
    titled = capitals > 2 and capitals > 0.7 * len(chunks)
    result: list[str] = []
    begins = True
    for index, chunk in enumerate(chunks):
        bare = _trimmed(chunk)
        if not bare:
            # Punctuation by itself says nothing, but that code may be made of: [] and {}.
            result += [CODE + chunk] if chunk in ("[]", "{}", "()", "!", "?.") else [STOP]
            continue
        ends = (
            bool(_ENDS.search(chunk) and bare.lower() not in ("vs", "e.g", "i.e")) or index == len(chunks) - 1
        )
        result += _read(bare, begins=begins, titled=titled)
        if ends or chunk.endswith(","):
            result.append(STOP if ends else COMMA)
        begins = ends
    return result


def _trimmed(chunk: str) -> str:
    """Without the punctuation around it; an operator such as `:=` or `!=` is left whole."""
    if not any(letter.isalnum() for letter in chunk):
        chunk = chunk.strip("\"'").rstrip("?,;")
        return chunk if re.fullmatch(r"[-+*/%=<>:&|^~$#@\\!]+", chunk) and chunk not in "-:!" else ""
    bare = chunk.strip(_AROUND)
    if chunk.rstrip(_AROUND.replace("(", "").replace(")", "") + ".:").endswith("()"):
        return bare.rstrip(".:") + "()" if not bare.endswith("()") else bare
    return bare.rstrip(".:" + _AROUND) if bare not in ("vs.",) else bare


def _read(bare: str, *, begins: bool, titled: bool) -> list[str]:
    low = bare.lower()
    if low in _SPELLED and not (len(bare) == 1 and bare.isupper()):
        return _SPELLED[low].split()
    if _FIGURE.fullmatch(bare):
        return [FIGURE + low]
    if "'" in bare:
        stem, _, rest = bare.rpartition("'")
        if rest.lower() in _VERBS:
            return [*_read(stem, begins=begins, titled=titled), _VERBS[rest.lower()]]
        if rest.lower() == "s":
            verb = stem.lower() in _BEFORE_IS
            return [*_read(stem, begins=begins, titled=titled), "is" if verb else _NOT_PLURAL]
        if not rest:
            return [*_read(stem, begins=begins, titled=titled), _NOT_PLURAL]
        bare = bare.replace("'", "")
        low = bare.lower()
    if bare.endswith("()"):
        bare = bare[:-2]
        return [CODE + bare] if bare else []
    if "-" in bare.strip("-") and all(_PLAIN.fullmatch(part) or part.isdigit() for part in low.split("-")):
        parts = [_read(part, begins=begins, titled=titled) for part in bare.split("-")]
        return [word for part in parts for word in part]
    if _CODE.search(bare):
        return [CODE + bare]
    if any(letter.isdigit() for letter in bare):
        return [CODE + low]
    if re.fullmatch(r"[A-Z]{2,}s", bare) and not titled:
        return [NAME + low[:-1]]
    if len(bare) == 1:
        article = bare == "a" or (begins and bare == "A") or low == "i"
        return [low if article else CODE + low]
    capital = bare[0].isupper() and (not begins or (bare.isupper() and len(bare) < 6)) and not titled
    return [NAME + low if capital else low]


def rewritten(words: Sequence[str], at: Callable[[Sequence[str], int], tuple[int, list[str]]]) -> list[str]:
    """`words` from left to right, each run of them as `at` reads it: how many, and what they become."""
    result: list[str] = []
    index = 0
    while index < len(words):
        taken, made = at(words, index)
        result += made
        index += taken
    return result
