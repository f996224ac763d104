"""Rules for what is asked for: the many ways to say how, why, when, where, who, what and whether.

`frames` applies its own rules first, then these.
"""

from __future__ import annotations

_ONE = "(?:i|we|you|one|people|someone|somebody|anyone|they)"
_ME = "(?:me|us)"
_BE = "(?:is|are|was|were)"
_DO = "(?:do|does|did)"
_MODAL = "(?:do|does|did|can|could|should|would|might|must|may|shall|will)"
_BEST = (
    "(?:best|right|correct|proper|recommended|usual|normal|standard|good|common|simple|simplest|easy|easiest"
    "|exact|actual)"
)
_WAY = (
    "(?:ways?|steps?|procedure|process|methods?|approach|instructions|technique|commands?|trick|means|guide"
    "|directions)"
)
_TO_DO = "(?:to|for|of|by which|that|in which)"

ASKING: tuple[tuple[str, str], ...] = (
    # Why
    (
        rf"how come|for (?:what|which) reasons?|(?:what|which) {_BE} the (?:main |real |likely"
        rf" )?(?:reasons?|causes?)"
        rf"(?: that| why| for| of| behind)?|(?:the )?reasons? (?:why|that|for|behind|of)|what (?:makes"
        rf"|made|causes"
        rf"|caused|leads to|led to|(?:could|can|might|would) (?:cause|be causing)|is causing|drives|drove)"
        rf"|why is it that|why",
        "@why",
    ),
    (
        r"what is (?:wrong|the matter|the problem|going on|the cause|the reason|happening)(?= \|)|what"
        r" (?:could|might|may)"
        r" be (?:wrong|the (?:reason|cause|problem|matter)|(?:causing|behind) (?:it|this|that))(?= \|)",
        "@why",
    ),
    # How to
    (
        rf"(?:what|which) (?:{_BE} |would be )?(?:the |a |some |an )?(?:{_BEST} )?{_WAY} (?:{_MODAL}"
        rf"|would) {_ONE}"
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
    (r"(?:what|which)(?: \S+)? command(?: lists?| shows?)?(?= \S+s )", "@how"),
    (
        rf"what (?:do|should|must|can|could|would) {_ONE} (?:have to |need to |best )?(?:do|try) (?:in"
        rf" order to|so as to"
        rf"|to|so that {_ONE})",
        "@how",
    ),
    (rf"what {_MODAL} {_ONE} (?:have to |need to )?do(?= (?:about|against|if|when|with|[|,]))", "@how"),
    (
        r"what (?:is|are) (?:needed|required|necessary) to|what does it take to|what (?:needs|has) to be"
        r" done to",
        "@how",
    ),
    (
        rf"how (?:do|can|could|should|would|might|must|may|shall|will)( {_ONE})(?: have to| need to| best|"
        rf" be able to)?"
        r"(?: go about| manage to)?",
        r"@how\1",
    ),
    (r"how (?:to|does one|best to|would one)(?: best)?", "@how"),
    (r"(?:in|by) (?:what|which) (?:way|ways|manner|means)|how", "@how"),
    (
        rf"(?<=[,|] )(?:{_ONE} (?:want|need|would like|wish|am trying|are trying|am looking|have|try) to"
        rf"|{_ONE} (?:want"
        rf"|need|would like) you to|help {_ME})",
        "@wish",
    ),
    (rf"do you (?:offer|have|sell|provide|carry|stock)|{_BE} there(?: any)?|ha(?:s|ve) got", "is"),
    # When, where, who
    (r"by whom", "@who @whom"),
    (r"(?:(?:at|from|by) )?(?:what|which) (?:time|hour)(?: of (?:the )?day)?", "@when @time"),
    (r"(?:(?:in|during|since) )?(?:what|which) year", "@when @year"),
    (r"(?:on )?(?:what|which) (?:date|day)", "@when @day"),
    (r"(?:in|during) (?:what|which)(?= (?:month|season|century|decade|period|era) )", "@when"),
    (
        rf"(?:what|which) {_BE} the (?:{_BEST} )?(time|year|day|date) (?:to|for|of|when|that|at which|in"
        rf" which)",
        r"@when @\1",
    ),
    (r"(?:the )?(year|date) (?:of the|when|in which|at which)", r"@when @\1"),
    (r"@date", "@day"),
    (rf"when(?= (?:{_MODAL}|to|is|are|was|were|has|have|will) )|(?<=\| )when(?= [^,@]*\|)", "@when"),
    (
        rf"(?:(?:in|at|from|to|on) )?(?:what|which) (?:place|location|spot)s?|(?:what|which) {_BE} the"
        rf" (?:place|location)"
        rf" (?:of|where)|in (?:what|which)(?= (?:country|city|town|state|region|continent) )|where",
        "@where",
    ),
    (
        rf"(?:what|which) (?:person|people)|(?:what|which) {_BE} the name of the (?:person|man"
        rf"|woman) (?:who|that)"
        rf"|who|whom",
        "@who",
    ),
    # Meaning and explanation
    (
        rf"(?:what|which) {_DO} {_ONE} mean (?:by|with|when)|what {_BE} meant (?:by|with)|what is the"
        rf" (?:exact )?(?:meaning"
        rf"|definition|sense) (?:of|behind)|(?:the )?(?:meaning|definition|explanation) of|(?:explain"
        rf"|describe|define"
        rf"|clarify|outline)(?: to {_ME}| for {_ME})?(?: the (?:concept|idea|meaning|term) of)?|what {_BE}"
        rf" the (?:concept"
        rf"|idea) (?:of|behind)|give {_ME} (?:a|an|the) (?:explanation|definition|overview) (?:of|about)"
        rf"|what can you tell"
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
        rf"{_BE} it (?:okay|alright|fine|all right|acceptable|possible|permitted|allowed|permissible)(?:"
        rf" for {_ONE})?"
        rf"(?: to| if {_ONE})",
        "@can",
    ),
    (
        rf"(?:am|are|is)( {_ONE}) (?:allowed|permitted) to|(?:can|could|may|might)( {_ONE})(?: be able to)?",
        r"@can\1\2",
    ),
    (
        rf"{_DO}( {_ONE}) (?:have|need) to|must( {_ONE})|(?:am|are)( {_ONE}) (?:required|obliged|forced)"
        rf" to|{_BE} it"
        rf" (?:necessary|required|mandatory|obligatory|compulsory|essential)(?: for( {_ONE}))? to",
        r"@must\1\2\3\4",
    ),
    (
        rf"should( {_ONE})|ought( {_ONE}) to|{_BE} it (?:advisable|recommended|better|a good idea|wise"
        rf"|sensible|best)"
        rf"(?: for( {_ONE}))? to|would it be (?:better|wise|a good idea) to",
        r"@should\1\2\3",
    ),
    (rf"{_BE} it safe(?: for {_ONE})?(?: to| if {_ONE})", "@can @safe"),
    (r"can|could|may|might", "@can"),
    (r"must|ha(?:s|ve) to", "@must"),
    (r"should|ought to", "@should"),
    (r"whether", "if"),
    (
        r"(@why(?: (?!(?:i|you|we|he|she) )\S+){1,5}?) (?:looks?|seems?"
        r"|appears?)(?= \S+ \|)",
        r"\1",
    ),
    (
        rf"(?:@should|@can|@must|do)(?: {_ONE})? (?:use|take|choose|need|get)(?= (?:to|for|when) )|(?:is"
        rf"|are) (?:right|good"
        r"|suitable|appropriate|suited)(?= (?:for|to) )",
        "",
    ),
)
