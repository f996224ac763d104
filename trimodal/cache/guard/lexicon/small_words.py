"""Small words that are no terms of a question, by what they say of its terms."""

from __future__ import annotations

from trimodal.cache.guard.lexicon.lexicon import lemma
from trimodal.cache.guard.lexicon.word_lists import word_set

NEGATORS = word_set("not no never none nothing nobody neither nor without unable")
PREPOSITIONS = word_set(
    """from to into onto in on at of for with by about within during inside before after than as like
    since until till under over above below through across along against around between among upon
    via except toward towards near beside behind outside instead_of versus beyond despite"""
)
PARTICLES = word_set("on off up down out away back over in")
FIRST, SECOND = frozenset(["i", "me", "we", "us"]), frozenset({"you"})
THIRD = {"he": "he", "him": "he", "his": "he", "she": "she", "her": "she", "hers": "she"}
PAST, FUTURE = frozenset(["did", "was", "were", "had"]), frozenset(["will", "shall", "going_to"])
PRESENT = word_set("do does is are am has have")
BE = word_set("is are was were be been being get gets got getting am")
MEASURES = frozenset(
    lemma(word)
    for word in word_set(
        """duration price frequency distance speed height size age depth width thickness weight temperature"""
    )
)
DEGREES = {"more": "er", "most": "est", "less": "less", "least": "least", "fewer": "less"}
NO_DEGREE = {"better": "er", "best": "est", "worse": "er", "worst": "est"}
CLAUSES = word_set(
    """before after until since than if while because but unless although so and @when that which"""
)
FIRST_IN_YES_NO = word_set(
    """is are was were am do does did has have had will would shall if @can @must @should"""
)
BEFORE_NOUNS = word_set(
    "list show find see view display a an the my our your his her their its this that these those of with"
    " from in on for"
)
JOINS = frozenset({"and", "or", "versus"})
NOISE = word_set(
    """letting having doing located situated approximately roughly a an the this that these those it
    its itself there here be is are am was were been being do does did done have has had will would
    shall some any such so too very also as s i me my mine we us our ours you your yours one ones
    they them their theirs of whose then else own self myself yourself let about_to able possible
    certain particular given specific already yet still even properly correctly if and or but nor
    while because when thing things stuff something anything , 's"""
)
"""No terms of their own; what they say of order, persons, tense and negation is noticed all the same."""

SOFT = word_set(
    """proper correct currently now nowadays successfully possibly exist happen occur definition value
    mean people person available"""
)
"""What may be left over in one of two questions, when nothing is in the other."""
