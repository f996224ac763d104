"""Knows Whisper's languages by their English names, and reads the ways in which a language is named."""

from __future__ import annotations

# openai-whisper's list.
_NAMES = """en english|zh chinese|de german|es spanish|ru russian|ko korean|fr french|ja japanese
pt portuguese|tr turkish|pl polish|ca catalan|nl dutch|ar arabic|sv swedish|it italian
id indonesian|hi hindi|fi finnish|vi vietnamese|he hebrew|uk ukrainian|el greek|ms malay
cs czech|ro romanian|da danish|hu hungarian|ta tamil|no norwegian|th thai|ur urdu|hr croatian
bg bulgarian|lt lithuanian|la latin|mi maori|ml malayalam|cy welsh|sk slovak|te telugu
fa persian|lv latvian|bn bengali|sr serbian|az azerbaijani|sl slovenian|kn kannada|et estonian
mk macedonian|br breton|eu basque|is icelandic|hy armenian|ne nepali|mn mongolian|bs bosnian
kk kazakh|sq albanian|sw swahili|gl galician|mr marathi|pa punjabi|si sinhala|km khmer|sn shona
yo yoruba|so somali|af afrikaans|oc occitan|ka georgian|be belarusian|tg tajik|sd sindhi
gu gujarati|am amharic|yi yiddish|lo lao|uz uzbek|fo faroese|ht haitian creole|ps pashto
tk turkmen|nn nynorsk|mt maltese|sa sanskrit|lb luxembourgish|my myanmar|bo tibetan|tl tagalog
mg malagasy|as assamese|tt tatar|haw hawaiian|ln lingala|ha hausa|ba bashkir|jw javanese
su sundanese|yue cantonese"""
CODES = {name: code for one in _NAMES.replace("\n", "|").split("|") for code, name in [one.split(" ", 1)]}
CODES |= {"burmese": "my", "valencian": "ca", "flemish": "nl", "haitian": "ht", "letzeburgesch": "lb"}
CODES |= {"pushto": "ps", "panjabi": "pa", "moldavian": "ro", "moldovan": "ro", "sinhalese": "si"}
CODES |= {"castilian": "es", "mandarin": "zh", "jv": "jw", "iw": "he", "in": "id", "nb": "no"}


def language_code(named: str) -> str:
    """The code of a language named as "en", "EN", "en-US", "en_US" or "English"; else what was given."""
    name = named.strip().lower()
    if name in CODES:
        return CODES[name]
    code = name.replace("_", "-").split("-")[0]
    code = CODES.get(code, code)
    return code if code in CODES.values() else named


def is_language(named: str) -> bool:
    """Whether a Whisper of many languages knows what is named so."""
    return language_code(named) in CODES.values()
