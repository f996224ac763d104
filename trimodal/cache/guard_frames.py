"""How a question is put: courtesies are dropped, and the many ways to ask the same become one word.

`@how`, `@what`, `@why`, … stand for what is asked for, `@can`, `@must`, `@should` for what
may be. The rules are regular expressions over words parted by single spaces, see
`guard_text.words`; they are applied in order, so that one may build on another's result.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

_ONE = "(?:i|we|you|one|people|someone|somebody|anyone|they)"
_SOMEBODY = "(?:you|someone|anyone|somebody|anybody)"
_ME = "(?:me|us)"
_BE = "(?:is|are|was|were)"
_DO = "(?:do|does|did)"
_MODAL = "(?:do|does|did|can|could|should|would|might|must|may|shall|will)"
_WH = "(?:how|what|why|when|where|who|which|whether|if)"
_BEST = "(?:best|right|correct|proper|recommended|usual|normal|standard|good|common|simple|simple|simplest|easy|exact|actual|easiest)"
_WAY = "(?:ways?|steps?|procedure|process|methods?|approach|instructions|technique|commands?|trick|means|guide|directions)"
_TO_DO = "(?:to|for|of|by which|that|in which)"
_GO_ON = "(?= (?:[|,]|to|for|on|in|with|if|when|after|before|from|at|until|during|once))"

_RULES: tuple[tuple[str, str], ...] = (
    # Courtesies and hesitations
    (
        r"(?<=\| )(?:hi|hello|hey|dear|good (?:morning|afternoon|evening))(?: there| team| all| everyone)?(?: [,|])?",
        "",
    ),
    (
        r"(?<=\| )(?:so|well|okay|um|uh|erm|er|hmm|alright|and|but|sorry|excuse me|quick question|right)(?: [,|])?",
        "",
    ),
    (
        r"please|kindly|um|uh|erm|hmm|thank you(?: very much| so much| in advance)?|thanks(?: a lot| in advance)?"
        r"|by the way|just|actually|really|exactly|basically|simply|quite|literally|at all|in fact|of course|anyway"
        r"|i guess|you know|if possible|for me|in general|generally|typically|normally|usually|ever|a bit|any more"
        r"|at the moment|right now|at present|currently|these days|nowadays",
        "",
    ),
    (r"(?:i have|got) (?:a|one) question(?: about| on| regarding)?(?: [,|])?", ""),
    (
        rf"(?:can|could|would|will) {_SOMEBODY}(?: possibly| maybe)? (?:tell|show|teach|inform|advise|remind|guide|walk"
        rf"|help)(?: {_ME})?(?: through| understand| know| on| with)?",
        "",
    ),
    (rf"(?:can|could|would|will) {_SOMEBODY}(?= (?:explain|describe|define|give|list|name))", ""),
    (rf"(?:tell|show|teach|remind|help|guide|walk) {_ME}(?: through| understand| know| with)?(?: to)?", ""),
    (rf"(?<=[,|] )help(?: {_ME})? (?:with|to)", ""),
    (
        rf"{_ONE} (?:would like|want|need|have|wish|am trying|are trying|would love|am looking|try) to (?:know|find out"
        rf"|learn|understand|ask|figure out|see)(?: about)?(?= {_WH} )",
        "",
    ),
    (rf"(?:do|does|would) {_SOMEBODY} (?:happen to )?(?:know|remember|have any idea)", ""),
    (
        r"i (?:wonder|am wondering|was wondering|am curious|do not know|am not sure|have no idea|can not figure out)"
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
        r"(?:anything|nothing|everything|all|anyone|everyone) (?:but|except)|except for|apart from|other than",
        "except",
    ),
    (r"(?:making use|by means|with the help) of|by using|by use of", "with"),
    (r"no longer", "not"),
    (r"(list|show|display|see|print|find) all(?: of)?", r"\1"),
    (r"throw(?= (?:an? |the )?(?:\S+ )?(?:exception|error) )", "raise"),
    (r"(?:(?:is|are|am) )?going to(?= (?!the |a |an |my |our |school |work |bed |\^)[a-z])", "will"),
    (r"(is|are)((?: \S+){1,4}?) going to(?= (?!the |a |an |my |our |school |work |bed |\^)[a-z])", r"will\2"),
    (
        r"((?:\S+est|most|first)(?: \S+){1,5}?) (?:in the (?:whole |entire )?world|on earth|on the planet|of all time)",
        r"\1",
    ),
    (r"(?:make|schedule|arrange|set up)(?= an? (?:appointment|reservation|booking) )", "book"),
    (r"(?:create|set up|register|open)(?= (?:an? |my )?(?:new )?(?:\S+ )?account )", "open"),
    (r"get((?: \S+){0,6}?) out of", r"remove\1 from"),
    (r"(?:opening|business|working|office) (?:hours|times)", "opening_hours"),
    (
        r"(?:what|which) (?:author|writer|composer|inventor|painter|artist|scientist|architect|director|explorer|engineer"
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
    (rf"how much((?: \S+){{1,10}}?) (?:costs?|charge|pay)", r"@what price\1"),
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
        r"how many|(?:what|which) (?:is the )?(?:total |exact )?(?:number|count) of|(?:the |total )?number of",
        "@many",
    ),
    (r"how much|(?:what|which) (?:is the )?(?:amount|quantity) of|(?:the )?amount of", "@much"),
    # Why
    (
        rf"how come|for (?:what|which) reasons?|(?:what|which) {_BE} the (?:main |real |likely )?(?:reasons?|causes?)"
        rf"(?: that| why| for| of| behind)?|(?:the )?reasons? (?:why|that|for|behind|of)|what (?:makes|made|causes"
        rf"|caused|leads to|led to|(?:could|can|might|would) (?:cause|be causing)|is causing|drives|drove)"
        rf"|why is it that|why",
        "@why",
    ),
    (
        r"what is (?:wrong|the matter|the problem|going on|the cause|the reason|happening)(?= \|)|what (?:could|might|may)"
        r" be (?:wrong|the (?:reason|cause|problem|matter)|(?:causing|behind) (?:it|this|that))(?= \|)",
        "@why",
    ),
    # How to
    (
        rf"(?:what|which) (?:{_BE} |would be )?(?:the |a |some |an )?(?:{_BEST} )?{_WAY} (?:{_MODAL}|would) {_ONE}"
        rf" (?:have to |need to )?(?:take|follow|use|perform|go through|run)(?: to| for)?",
        "@how",
    ),
    (rf"(?:what|which) (?:{_BE}|would be|will be) (?:the |a |some )?(?:{_BEST} )?{_WAY} {_TO_DO}", "@how"),
    (rf"(?:what|which) (?:{_BE}|would be) (?:the|a|an|some) (\S+) {_WAY} {_TO_DO}", r"@how \1"),
    (rf"{_BE} there (?:a|any|some)(?: {_BEST})? {_WAY} {_TO_DO}", "@way"),
    (rf"{_BE} there (?:a|any|some) (\S+) {_WAY} {_TO_DO}", r"@way \1"),
    (
        rf"(?:have you|do you (?:have|know)|{_ONE} (?:need|want|am looking for|are looking for))"
        rf" (?:a|any|some|the)(?: {_BEST})? {_WAY} {_TO_DO}",
        "@how",
    ),
    (rf"(?:the )?(?:{_BEST} )?{_WAY} (?:to|for|of)(?= (?:\S+ing|\S+) )", "@how"),
    (rf"(?:what|which)(?: \S+)? command(?: lists?| shows?)?(?= \S+s )", "@how"),
    (
        rf"what (?:do|should|must|can|could|would) {_ONE} (?:have to |need to |best )?(?:do|try) (?:in order to|so as to"
        rf"|to|so that {_ONE})",
        "@how",
    ),
    (rf"what {_MODAL} {_ONE} (?:have to |need to )?do(?= (?:about|against|if|when|with|[|,]))", "@how"),
    (
        r"what (?:is|are) (?:needed|required|necessary) to|what does it take to|what (?:needs|has) to be done to",
        "@how",
    ),
    (
        rf"how (?:do|can|could|should|would|might|must|may|shall|will)( {_ONE})(?: have to| need to| best| be able to)?"
        r"(?: go about| manage to)?",
        r"@how\1",
    ),
    (r"how (?:to|does one|best to|would one)(?: best)?", "@how"),
    (r"(?:in|by) (?:what|which) (?:way|ways|manner|means)|how", "@how"),
    (
        rf"(?<=[,|] )(?:{_ONE} (?:want|need|would like|wish|am trying|are trying|am looking|have|try) to|{_ONE} (?:want"
        rf"|need|would like) you to|help {_ME})",
        "@wish",
    ),
    (rf"do you (?:offer|have|sell|provide|carry|stock)|{_BE} there(?: any)?|ha(?:s|ve) got", "is"),
    # When, where, who
    (r"(?:(?:at|from|by) )?(?:what|which) (?:time|hour)(?: of (?:the )?day)?", "@when @time"),
    (r"(?:(?:in|during|since) )?(?:what|which) year", "@when @year"),
    (r"(?:on )?(?:what|which) (?:date|day)", "@when @day"),
    (r"(?:in|during) (?:what|which)(?= (?:month|season|century|decade|period|era) )", "@when"),
    (
        rf"(?:what|which) {_BE} the (?:{_BEST} )?(time|year|day|date) (?:to|for|of|when|that|at which|in which)",
        r"@when @\1",
    ),
    (r"(?:the )?(year|date) (?:of the|when|in which|at which)", r"@when @\1"),
    (r"@date", "@day"),
    (rf"when(?= (?:{_MODAL}|to|is|are|was|were|has|have|will) )|(?<=\| )when(?= [^,@]*\|)", "@when"),
    (
        rf"(?:(?:in|at|from|to|on) )?(?:what|which) (?:place|location|spot)s?|(?:what|which) {_BE} the (?:place|location)"
        rf" (?:of|where)|in (?:what|which)(?= (?:country|city|town|state|region|continent) )|where",
        "@where",
    ),
    (
        rf"by whom|(?:what|which) (?:person|people)|(?:what|which) {_BE} the name of the (?:person|man|woman) (?:who|that)"
        rf"|who|whom",
        "@who",
    ),
    # Meaning and explanation
    (
        rf"(?:what|which) {_DO} {_ONE} mean (?:by|with|when)|what {_BE} meant (?:by|with)|what is the (?:exact )?(?:meaning"
        rf"|definition|sense) (?:of|behind)|(?:the )?(?:meaning|definition|explanation) of|(?:explain|describe|define"
        rf"|clarify|outline)(?: to {_ME}| for {_ME})?(?: the (?:concept|idea|meaning|term) of)?|what {_BE} the (?:concept"
        rf"|idea) (?:of|behind)|give {_ME} (?:a|an|the) (?:explanation|definition|overview) (?:of|about)|what can you tell"
        rf" {_ME} about",
        "@what",
    ),
    (rf"what {_DO}((?: \S+){{1,8}}?) (?:mean|refer to|signify)(?= [|,])", r"@what\1"),
    (r"(?<= )(?:explained|definition|meaning)(?= \|)", "@what"),
    (r"(?:what|which) (?:kind|kinds|sort|sorts|type|types) of", "@what kind"),
    (r"what|which", "@what"),
    (rf"@what {_BE} the (?:names?) of(?: the)?|(?<=\| )(?:name|list|give {_ME})", "@what"),
    # Whether it may be, and must be
    (
        rf"{_BE} it (?:okay|alright|fine|all right|acceptable|possible|permitted|allowed|permissible)(?: for {_ONE})?"
        rf"(?: to| if {_ONE})",
        "@can",
    ),
    (
        rf"(?:am|are|is)( {_ONE}) (?:allowed|permitted) to|(?:can|could|may|might)( {_ONE})(?: be able to)?",
        r"@can\1\2",
    ),
    (
        rf"{_DO}( {_ONE}) (?:have|need) to|must( {_ONE})|(?:am|are)( {_ONE}) (?:required|obliged|forced) to|{_BE} it"
        rf" (?:necessary|required|mandatory|obligatory|compulsory|essential)(?: for( {_ONE}))? to",
        r"@must\1\2\3\4",
    ),
    (
        rf"should( {_ONE})|ought( {_ONE}) to|{_BE} it (?:advisable|recommended|better|a good idea|wise|sensible|best)"
        rf"(?: for( {_ONE}))? to|would it be (?:better|wise|a good idea) to",
        r"@should\1\2\3",
    ),
    (rf"{_BE} it safe(?: for {_ONE})?(?: to| if {_ONE})", "@can @safe"),
    (r"can|could|may|might", "@can"),
    (r"must|ha(?:s|ve) to", "@must"),
    (r"should|ought to", "@should"),
    (r"whether", "if"),
    (
        rf"(?:@should|@can|@must|do)(?: {_ONE})? (?:use|take|choose|need|get)(?= (?:to|for|when) )|(?:is|are) (?:right|good"
        r"|suitable|appropriate|suited)(?= (?:for|to) )",
        "",
    ),
)

_COMPILED = [(re.compile(rf"(?<= )(?:{pattern})(?= )"), to) for pattern, to in _RULES]
_SPACES = re.compile(" {2,}")


def framed(words: Sequence[str]) -> list[str]:
    """`words` with courtesies dropped and frames as `@` words."""
    text = f" | {' '.join(words)} "
    for pattern, replacement in _COMPILED:
        text, changed = pattern.subn(replacement, text)
        if changed:
            text = _SPACES.sub(" ", text)
    return text.split()
