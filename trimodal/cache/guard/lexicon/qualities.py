"""Adjectives and adverbs that may stand for each other, and small words that say nothing by themselves.

Groups are parted by semicolons, as in `guard_verbs`.
"""

from trimodal.cache.guard.lexicon.word_lists import word_set

QUALITIES = """
big large; huge enormous gigantic; small little; tiny minuscule; fast quick rapid; easy simple;
hard difficult tough; cheap inexpensive affordable; cheap low_cost; expensive costly pricey;
good fine okay; good right suitable appropriate; good recommended; right correct proper;
right suitable appropriate ideal; suitable fit; bad harmful; dangerous risky hazardous unsafe;
free gratis for_free free_of_charge at_no_cost; broken damaged defective faulty; broken not_work;
recent latest; latest most_recent newest; latest last; old ancient; ancient antique; happy glad;
sick ill unwell; tired exhausted; important significant; important crucial; necessary required needed;
needed necessary; wrong incorrect; different distinct; same identical equal; similar alike;
common typical usual; common frequent; rare uncommon; famous well_known renowned; popular famous;
beautiful pretty; strong powerful; rich wealthy; smart intelligent clever; quiet silent; loud noisy;
whole entire complete; whole full; main primary principal; several multiple; many numerous;
many lots_of a_lot_of; enough sufficient; extra additional; another other; another additional;
own personal; every each all; previous prior former; final last; near close nearby; near next_to;
outdoors outside; indoors inside; abroad overseas; around about approximately roughly circa;
simultaneously at_the_same_time at_once concurrently in_parallel;
immediately right_away straight_away instantly at_once; soon shortly; maybe perhaps; up_to_date current;
in_advance beforehand ahead_of_time; by_hand manually manual; automatically automatic;
permanently forever permanent; temporary temporarily; safe safely; cold chilly; wet damp; useful helpful;
raw uncooked; blurry blurred out_of_focus; multiple more_than_one; several more_than_one; last most_recent;
wide broad; thin slim; tall high; long lengthy; brief short; modern contemporary; global worldwide;
strange weird odd; normal ordinary; normal usual; normal typical; afraid scared; angry mad; delayed late;
in_stock available; out_of_stock sold_out unavailable; faulty defective; second_hand pre_owned;
contagious infectious; pregnant expecting; tired fatigue; rainy wet; sleepy drowsy; dizzy lightheaded;
delicious tasty; boring dull; worth worthwhile; worth_it worth; cost_free free;
reliable dependable trustworthy; secure safe; legal lawful allowed; illegal unlawful
"""

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
