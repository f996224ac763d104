"""Drops courtesies from a question and makes the many ways to ask the same one word.

`@how`, `@what`, `@why`, … stand for what is asked for, `@can`, `@must`, `@should` for what
may be. The rules are regular expressions over words parted by single spaces, see
`words.words`; they are applied in order, so that one may build on another's result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from trimodal.cache.guard.reading.asking import ASKING

_ONE = "(?:i|we|you|one|people|someone|somebody|anyone|they)"
_SOMEBODY = "(?:you|someone|anyone|somebody|anybody)"
_ME = "(?:me|us)"
_BE = "(?:is|are|was|were)"
_DO = "(?:do|does|did)"
_WH = "(?:how|what|why|when|where|who|which|whether|if)"
_GO_ON = "(?= (?:[|,]|to|for|on|in|with|if|when|after|before|from|at|until|during|once))"

_RULES: tuple[tuple[str, str], ...] = (
    # Courtesies and hesitations
    (
        r"(?<=\| )(?:hi|hello|hey|dear|good (?:morning|afternoon|evening))(?: there| team| all|"
        r" everyone)?(?: [,|])?",
        "",
    ),
    (
        r"(?<=\| )(?:so|well|okay|um|uh|erm|er|hmm|alright|and|but|sorry|excuse me|quick question"
        r"|right)(?: [,|])?",
        "",
    ),
    (
        r"please|kindly|um|uh|erm|hmm|thank you(?: very much| so much| in advance)?|thanks(?: a lot| in"
        r" advance)?"
        r"|by the way|just|actually|really|exactly|basically|simply|quite|literally|at all|in fact|of"
        r" course|anyway"
        r"|i guess|you know|if possible|for me|in general|generally|typically|normally|usually|ever|a bit"
        r"|any more"
        r"|at the moment|right now|at present|currently|these days|nowadays",
        "",
    ),
    (r"(?:i have|got) (?:a|one) question(?: about| on| regarding)?(?: [,|])?", ""),
    (
        rf"(?:can|could|would|will) {_SOMEBODY}(?: possibly| maybe)? (?:tell|show|teach|inform|advise"
        rf"|remind|guide|walk"
        rf"|help)(?: {_ME})?(?: through| understand| know| on| with)?",
        "",
    ),
    (rf"(?:can|could|would|will) {_SOMEBODY}(?= (?:explain|describe|define|give|list|name))", ""),
    (rf"(?:tell|show|teach|remind|help|guide|walk) {_ME}(?: through| understand| know| with)?(?: to)?", ""),
    (rf"(?<=[,|] )help(?: {_ME})? (?:with|to)", ""),
    (
        rf"{_ONE} (?:would like|want|need|have|wish|am trying|are trying|would love|am looking|try) to"
        rf" (?:know|find out"
        rf"|learn|understand|ask|figure out|see)(?: about)?(?= {_WH} )",
        "",
    ),
    (rf"(?:do|does|would) {_SOMEBODY} (?:happen to )?(?:know|remember|have any idea)", ""),
    (
        r"i (?:wonder|am wondering|was wondering|am curious|do not know|am not sure|have no idea|can not"
        r" figure out)"
        rf"(?: about)?(?= {_WH} )",
        "",
    ),
    (rf"(?:any|an) (?:ideas?|advice|tips|suggestions|clue)(?: on| about| of| for)?(?= {_WH} )", ""),
    (rf"(?:explain|describe|clarify|define|outline)(?: to {_ME}| for {_ME})?(?= {_WH} )", ""),
    (r"go(?:es|ing)?(?= \w+ing )", ""),
    (r"whenever|every time|each time|as soon as(?= (?!possible))|once(?= (?:i|it|the|you|my|they) )", "when"),
    (
        r"(?:tell|know|see|check|verify|find out|determine)(?= (?:if|whether) )|(?:tell|know)(?= that )",
        "check",
    ),
    (r"(?:turn|change|make|transform)((?: \S+){1,5}?) into", r"convert\1 to"),
    (
        r"(?:end|stop|terminate|quit)(?= (?:my|the|a|our) (?:subscription|membership|contract|plan) )",
        "cancel",
    ),
    (r"(?:is|are|am|be|been|was|were) able to", "@can"),
    (r"at the time of|in the course of|in the time of", "during"),
    (r"with no", "without"),
    (
        r"(?:anything|nothing|everything|all|anyone|everyone) (?:but|except)|except for|apart from|other"
        r" than",
        "except",
    ),
    (r"(?:making use|by means|with the help) of|by using|by use of", "with"),
    (r"no longer", "not"),
    (r"keeps?(?: on)?(?= \w+ing )|all the time|constantly|again and again|repeatedly", "always"),
    (r"(?:so )?(?:what now|now what|what next)(?= \|)", "how"),
    (r"the (?:right|correct|proper|appropriate|suitable)(?= \S)", "the"),
    (
        rf"what (?:can|could|should|do) {_ONE} use instead of|what(?: else)? (?:can|could) replace",
        "what is substitute for",
    ),
    (
        r"what (?:is|are|would be) (?:an? |some |the )?(?:good |best )?(?:substitutes?|replacements?"
        r"|alternatives?)"
        r" (?:for|to|of)",
        "what is substitute for",
    ),
    (rf"{_ONE} (?:want|would like)((?: (?!to )\S+){{1,4}}) to be", r"please\1 is"),
    (rf"{_ONE} (?:need|want|would like) (?:some )?help (?:with|to|in)", "how to"),
    (r"(list|show|display|see|print|find) all(?: of)?", r"\1"),
    (r"throw(?= (?:an? |the )?(?:\S+ )?(?:exception|error) )", "raise"),
    (r"(?:(?:is|are|am) )?going to(?= (?!the |a |an |my |our |school |work |bed |\^)[a-z])", "will"),
    (r"(is|are)((?: \S+){1,4}?) going to(?= (?!the |a |an |my |our |school |work |bed |\^)[a-z])", r"will\2"),
    (
        r"((?:\S+est|most|first)(?: \S+){1,5}?) (?:in the (?:whole |entire )?world|on earth|on the planet"
        r"|of all time)",
        r"\1",
    ),
    (r"(?:make|schedule|arrange|set up)(?= an? (?:appointment|reservation|booking) )", "book"),
    (r"(?:create|set up|register|open)(?= (?:an? |my )?(?:new )?(?:\S+ )?account )", "open"),
    (r"get((?: \S+){0,6}?) out of", r"remove\1 from"),
    (r"(?:opening|business|working|office) (?:hours|times)", "opening_hours"),
    (
        r"(?:what|which) (?:author|writer|composer|inventor|painter|artist|scientist|architect|director"
        r"|explorer|engineer"
        r"|philosopher)(?= \S+(?:ed|ote|ade|ang|ilt|ound|ew) )",
        "who",
    ),
    (r"fails? to|failed to|failing to|(?:is|am|are|was|were) unable to", "not"),
    # What a thing is for, and how two things differ
    (rf"how {_DO}((?: \S+){{1,7}}?) differ (?:from|to|than)", r"@what difference between\1 and"),
    (rf"how {_BE}((?: \S+){{1,7}}?) different (?:from|to|than)", r"@what difference between\1 and"),
    (
        rf"what {_BE}((?: \S+){{1,6}}?) (?:used |good |useful |meant |there )?for(?= [|,])",
        r"@what @purpose\1",
    ),
    (rf"what {_DO}((?: \S+){{1,6}}?) (?:do|does)(?= [|,])", r"@what @does\1"),
    (r"what(?: is)? the (?:point|use|purpose|aim) of", "@what @purpose"),
    # How long, how much: a measure that is asked for
    (r"how much time|(?:what|which) (?:length|amount) of time", "how long"),
    (r"how much((?: \S+){1,10}?) (?:costs?|charge|pay)", r"@what price\1"),
    (rf"how much(?= {_DO} (?:\S+ ){{1,8}}?weigh )", "@what"),
    (rf"how much(?: money)?(?= {_BE} )", "@what price"),
    (rf"how (?:long|much longer)((?: \S+){{1,10}}?) (?:takes?|lasts?){_GO_ON}", r"@what duration\1"),
    (r"how (?:long|much longer)", "@what duration"),
    (r"how (?:often|frequently|regularly|many times)", "@what frequency"),
    (r"how (?:far|far away)", "@what distance"),
    (rf"how (?:fast|quickly)((?: \S+){{1,6}}?) (?:travels?|moves?|goe?s?){_GO_ON}", r"@what speed\1"),
    (r"how (?:fast|quick|quickly)", "@what speed"),
    (r"how (?:tall|high)", "@what height"),
    (r"how (?:big|large)", "@what size"),
    (r"how old", "@what age"),
    (r"how deep(?:ly)?", "@what depth"),
    (r"how wide", "@what width"),
    (r"how thick", "@what thickness"),
    (r"how heavy", "@what weight"),
    (r"how (?:hot|warm|cold)", "@what temperature"),
    (
        r"how many|(?:what|which) (?:is the )?(?:total |exact )?(?:number|count) of|(?:the |total )?number"
        r" of",
        "@many",
    ),
    (r"how much|(?:what|which) (?:is the )?(?:amount|quantity) of|(?:the )?amount of", "@much"),
)

_COMPILED = [(re.compile(rf"(?<= )(?:{pattern})(?= )"), to) for pattern, to in (*_RULES, *ASKING)]
_SPACES = re.compile(" {2,}")


def framed(words: Sequence[str]) -> list[str]:
    """`words` with courtesies dropped and frames as `@` words."""
    text = f" | {' '.join(words)} "
    for pattern, replacement in _COMPILED:
        text, changed = pattern.subn(replacement, text)
        if changed:
            text = _SPACES.sub(" ", text)
    return text.split()
