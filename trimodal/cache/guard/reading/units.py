"""Units of measure: their spellings, what they measure, and how many base units one has.

Only what is certain is converted: 2 weeks are 14 days, but a month has no number of days,
and a megabyte may have a million bytes or a few more. `numbers` reads the numbers.
"""

from __future__ import annotations

from fractions import Fraction

from trimodal.cache.guard.lexicon.word_lists import word_set

# dimension: spellings=how many of the first
_TABLE = """
time: s sec secs second seconds=1; min mins minute minutes=60; h hr hrs hour hours=3600; day days=86400; \
week weeks wk wks=604800; fortnight fortnights=1209600; ms millisecond milliseconds msec=1/1000; \
us microsecond microseconds=1/1000000; ns nanosecond nanoseconds=1/1000000000
years: month months mo=1; year years yr yrs=12; decade decades=120; century centuries=1200
metres: mm millimeter millimeters=1/1000; cm centimeter centimeters=1/100; m meter meters=1; \
km kms kilometer kilometers=1000
feet: inch inches=1; ft foot feet=12; yd yds=36; mile miles=63360
grams: mg milligram milligrams=1/1000; g gr gram grams gramme grammes=1; kg kgs kilo kilos \
kilogram kilograms=1000; ton tons tonne tonnes=1000000; mcg microgram micrograms=1/1000000
pounds: oz ounce ounces=1; lb lbs pound pounds=16
litres: ml milliliter milliliters=1/1000; cl centiliter centiliters=1/100; dl deciliter deciliters=1/10; \
l liter liters=1
cups: cup cups=1
tablespoons: tbsp tbsps tablespoon tablespoons=1
teaspoons: tsp tsps teaspoon teaspoons=1
pints: pint pints=1; quart quarts=2; gallon gallons gal=8
degrees: degree degrees deg °=1
celsius: celsius centigrade °c=1
fahrenheit: fahrenheit °f=1
kelvin: kelvin=1
percent: % percent pct=1
kilobytes: kb kilobyte kilobytes=1
megabytes: mb megabyte megabytes=1
gigabytes: gb gigabyte gigabytes gig gigs=1
terabytes: tb terabyte terabytes=1
kibibytes: kib=1
mebibytes: mib=1
gibibytes: gib=1
bytes: byte bytes=1
bits: bit bits=1
kilobits: kbit kbits kbps kilobit kilobits=1
megabits: mbit mbits mbps megabit megabits=1
gigabits: gbit gbits gbps gigabit gigabits=1
watts: w watt watts=1; kw kilowatt kilowatts=1000; mw megawatt megawatts=1000000
watthours: wh=1; kwh=1000
volts: v volt volts=1
amperes: amp amps ampere amperes=1
hertz: hz hertz=1; khz kilohertz=1000; mhz megahertz=1000000; ghz gigahertz=1000000000
calories: kcal calorie calories cal=1
joules: joule joules=1; kj kilojoule kilojoules=1000
acres: acre acres=1
hectares: hectare hectares=1
psi: psi=1
bar: bars=1
mph: mph=1
kmh: km/h kmh kph=1
dollars: $ dollar dollars usd buck bucks=1; cent cents=1/100
euros: € euro euros eur=1
sterling: £ gbp quid=1
yen: ¥ yen jpy=1
francs: chf franc francs=1
pixels: px pixel pixels=1
times: x=1
"""

UNITS: dict[str, tuple[str, Fraction]] = {}
"""Spelling in lower case → dimension and how many base units it has."""
for _line in filter(None, _TABLE.splitlines()):
    _dimension, _, _rest = _line.partition(": ")
    for _group in _rest.split("; "):
        _spellings, _, _factor = _group.partition("=")
        for _spelling in _spellings.split():
            UNITS[_spelling] = _dimension, Fraction(_factor)
            if _spelling.endswith(("meter", "meters", "liter", "liters")):
                british = _spelling.replace("meter", "metre").replace("liter", "litre")
                UNITS[british] = _dimension, Fraction(_factor)

# Letters and everyday words are units only right behind a number.
_ONLY_BEHIND_NUMBERS = word_set(
    """s m h g l w v x us min mo sec gal cal mw bar bars cup cups foot feet ft second bit bits cent ton
    tons mb kb deg $ € £ ¥"""
)
TIMES = frozenset({"time", "years"})
"""The dimensions of durations."""


def unit_word(word: str) -> str:
    """The unit that `word` names without a number, as a word of its own ("u:grams*1000"); "" when none."""
    if word in _ONLY_BEHIND_NUMBERS or word not in UNITS:
        return ""
    dimension, factor = UNITS[word]
    return f"u:{dimension}*{factor}"


def quantity(number: Fraction, unit: str) -> str:
    """Returns a number with its unit in base units: the same word for 2 weeks and 14 days."""
    dimension, factor = UNITS[unit]
    return f"q:{dimension}*{number * factor}"
