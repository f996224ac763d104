"""Lists questions that the demo LLM is to refuse, to train on and to measure with.

Trained on: templates about things of the world, names of Python that are no topic, words out of the passages
and made-up ones. HELD_OUT (off_topic_held_out.txt) are whole questions that nothing is trained on. Each
function draws from the generator that it is given.
"""

from __future__ import annotations

import builtins
import keyword
import random
import re
import sys
from collections.abc import Callable
from pathlib import Path

from llm_training.data import load_passages, load_topics

THINGS = (
    "banana", "horse", "guitar", "elephant", "bicycle", "volcano", "planet", "computer", "car", "phone",
    "river", "mountain", "church", "castle", "violin", "apple", "potato", "tomato", "pizza", "sandwich",
    "cake", "dog", "cat", "tiger", "shark", "whale", "spider", "butterfly", "tree", "rose", "flower",
    "train", "plane", "ship", "rocket", "robot", "camera", "television", "radio", "newspaper", "novel",
    "poem", "movie", "song", "painting", "museum", "school", "university", "hospital", "doctor", "lawyer",
    "teacher", "king", "queen", "president", "minister", "army", "bank", "market", "company", "shop",
    "restaurant", "kitchen", "garden", "house", "bridge", "street", "battery", "magnet", "molecule", "atom",
    "cell", "virus", "vaccine", "brain", "heart", "bone", "muscle", "storm", "rainbow", "glacier", "desert",
    "island", "forest", "comet", "star", "galaxy", "telescope", "clock", "hammer", "wheel", "engine",
    "keyboard", "printer", "database", "browser", "website", "compiler", "pointer", "monad", "hash map",
    "linked list", "neural network", "blockchain", "spreadsheet", "password", "mouse", "camel", "shirt",
    "shoe", "hat", "coat", "bottle", "cup", "spoon", "chair", "lamp", "mirror", "window", "door knob",
)  # fmt: skip
SUBSTANCES = (
    "water", "coffee", "gold", "oxygen", "love", "music", "football", "chess", "gravity", "democracy",
    "history", "physics", "chemistry", "biology", "geography", "economics", "politics", "religion",
    "philosophy", "poetry", "tennis", "basketball", "cricket", "yoga", "sleep", "happiness", "anger",
    "inflation", "electricity", "light", "sugar", "bread", "cheese", "wine", "beer", "milk", "rice",
    "steel", "plastic", "glass", "paper", "wood", "photosynthesis", "evolution", "quantum physics",
    "relativity", "climate change", "global warming", "rust", "javascript", "java", "haskell", "fortran",
    "c++", "golang", "ruby", "perl", "html", "sql", "linux", "windows", "kubernetes", "docker", "numpy",
    "pandas", "pytorch", "tensorflow", "django", "flask", "git", "excel", "bitcoin", "the moon", "the sun",
    "the weather", "the internet", "the ocean", "the economy", "the stock market", "jazz",
    "machine learning", "artificial intelligence", "cooking", "swimming", "fishing", "money", "time travel",
    "peace",
)  # fmt: skip
PLACES = (
    "paris", "london", "berlin", "madrid", "tokyo", "new york", "moscow", "cairo", "sydney", "chicago",
    "vienna", "athens", "dublin", "oslo", "lisbon", "prague", "warsaw", "delhi", "beijing", "seoul",
    "boston", "texas", "england", "germany", "spain", "japan", "italy", "russia", "china", "india",
    "brazil", "canada", "mexico", "egypt", "greece", "norway", "sweden", "poland", "turkey", "australia",
    "africa", "europe", "america", "asia", "france", "the netherlands", "switzerland", "austria",
    "portugal", "argentina", "kenya", "nigeria", "iran", "israel",
)  # fmt: skip
PEOPLE = (
    "shakespeare", "mozart", "beethoven", "einstein", "newton", "darwin", "napoleon", "caesar", "columbus",
    "gandhi", "picasso", "goethe", "plato", "aristotle", "marie curie", "lincoln", "washington", "elvis",
    "madonna", "homer", "the pope", "the queen of england", "the president", "my neighbour", "your mother",
    "my boss", "the mayor", "guido van rossum", "alan turing", "ada lovelace", "bill gates",
    "my best friend", "the prime minister",
)  # fmt: skip
ATTRIBUTES = (
    "capital", "population", "president", "king", "history", "colour", "price", "size", "weight", "age",
    "name", "height", "length", "currency", "language", "flag", "national animal", "highest mountain",
    "longest river", "biggest city", "time zone", "meaning", "origin", "temperature", "speed", "distance",
    "area", "religion", "best part", "purpose", "opposite", "birthday", "address", "phone number", "mayor",
    "food", "climate", "owner",
)  # fmt: skip
DONE = (
    "invented", "discovered", "wrote", "painted", "built", "founded", "won", "directed", "composed",
    "designed", "killed", "married", "played", "sang", "bought", "sold", "created", "made", "stole", "ate",
    "lost", "broke",
)  # fmt: skip
ACTS = (
    "cook rice", "bake a cake", "lose weight", "learn french", "learn to drive", "fix my car",
    "grow tomatoes", "play the guitar", "write a letter", "make money", "get rich", "sleep better",
    "tie a tie", "boil an egg", "find a job", "clean a window", "paint a wall", "stop smoking",
    "build a house", "get to the station", "open a bottle", "print a photo", "copy a key", "join the army",
    "set the table", "pass an exam", "raise a child", "break a habit", "return a parcel", "sort my clothes",
    "list my car for sale", "format my disk", "zip my coat", "import wine", "cancel my subscription",
    "call a taxi", "try on shoes", "filter water", "count sheep", "install windows", "train a dog",
    "repair a bike", "make coffee", "draw a cat", "read faster", "replace a tyre",
)  # fmt: skip
# {thing}: with its article; {stuff}: without one.
TEMPLATES = (
    "what is the {attribute} of {place}", "what is the {attribute} of {place}",
    "what is the {attribute} of {thing}", "what was the {attribute} of {person}",
    "what's the {attribute} of {place}", "tell me the {attribute} of {place}",
    "do you know the {attribute} of {place}", "name the {attribute} of {place}",
    "what {attribute} does {place} have", "what is {thing}", "what is {stuff}", "what are {things}",
    "explain {stuff}", "explain {thing}", "tell me about {stuff}", "tell me about {place}",
    "tell me about {person}", "describe {thing}", "describe {place}", "how does {thing} work",
    "how does {stuff} work", "how do {things} work", "what does {thing} do", "why do {things} exist",
    "why is {stuff} so important", "why is {stuff} so expensive", "why is the {noun} {colour}",
    "where is {place}", "where is the {noun}", "where can i buy {thing}", "where do {things} live",
    "where does {stuff} come from", "where was {person} born", "where did i leave my {noun}",
    "who is {person}", "who was {person}", "who {done} {thing}", "who {done} the {noun}",
    "who {done} {stuff}", "who is the {attribute} of {place}", "when was {person} born",
    "when did {person} die", "when was the {noun} {done}", "when did {place} become a country",
    "how old is {person}", "how old is the {noun}", "how big is {thing}", "how far is {place}",
    "how far is it from {place} to {place}", "how many {things} are there",
    "how many {things} does {person} have", "how many people live in {place}", "how much is {thing}",
    "how much does {thing} cost", "how tall is {person}", "how long does {stuff} last",
    "how long is the {noun}", "how do i {act}", "how do i {act}", "how can i {act}", "how to {act}",
    "can you {act}", "can you help me {act}", "could you {act} for me", "please {act}", "should i {act}",
    "i want to {act}", "what do i need to {act}", "give me a recipe for {thing}",
    "give me a list of {things}", "give me {number} names for my {noun}", "write a poem about {stuff}",
    "write a story about {thing}", "write an essay about {place}", "tell me a joke about {things}",
    "sing a song about {person}", "draw {thing}", "show me a picture of {thing}",
    "translate {stuff} into {language}", "how do you say {stuff} in {language}",
    "what is {stuff} in {language}", "what is {number} plus {number}", "what is {number} times {number}",
    "how much is {number} minus {number}", "calculate {number} divided by {number}",
    "what is the square root of {number}", "is {number} a prime number", "what day is it",
    "what is the date today", "what is the time in {place}", "what is the weather in {place}",
    "will it rain in {place} tomorrow", "is {stuff} healthy", "is {stuff} dangerous", "is {place} nice",
    "do you like {stuff}", "do you like {things}", "do you have {thing}", "have you seen my {noun}",
    "are you {thing}", "i love {stuff}", "i hate {things}", "i need {thing}", "i lost my {noun}",
    "my {noun} is broken", "the {noun} is {colour}", "recommend {thing}", "which {noun} is the best",
    "which {noun} should i buy", "which is bigger, {place} or {place}",
    "which is better, {stuff} or {stuff}", "compare {stuff} and {stuff}",
    "what is the difference between {thing} and {thing}", "what is the best {noun} in {place}",
    "book {thing} for me", "book a flight to {place}", "order {thing}", "buy {thing}", "call {person}",
    "send a message to {person}", "play some {stuff}", "turn on the {noun}", "what should i eat",
    "what should i wear in {place}", "who are {things}", "what did {person} say", "what did {person} write",
    "what is the name of my {noun}", "can {things} fly", "can {things} swim", "does {person} like {stuff}",
    "did {person} like {things}", "what happened in {place}", "what happened in {year}",
    "who won the world cup in {year}", "who was president in {year}", "in {year}", "what colour is {thing}",
    "what colour is the {noun}", "is the {noun} {colour}", "what do {things} eat",
    "what is {person} famous for", "which language do they speak in {place}", "how hot is {thing}",
    "{stuff}", "{place}", "{person}", "{thing}", "{stuff} or {stuff}", "the {noun}", "what about {stuff}",
    "what about {place}",
)  # fmt: skip
# {topic}: the name of a topic, as a word of a sentence that is not about it.
SAME_WORDS = (
    "how do i {topic} {thing}", "{topic} the {noun} for me", "please {topic} my {noun}",
    "can you {topic} {things}", "what is a {topic} of {things}", "is there a {topic} of {place}",
    "who is in the {topic} of {year}", "what is the {topic} of {place}", "what is the {topic} of {thing}",
    "where is the {topic} of {person}", "i want to {topic} a {noun}",
    "which {topic} is the best for {things}", "who {done} the {topic} of {place}",
    "how much does a {topic} of {stuff} cost", "when did {person} {topic} the {noun}",
    "{topic} {number} {things}",
)  # fmt: skip
OPINIONS = (
    "i think {person} is {colour}", "i think that {things} are {colour}", "i believe in {stuff}",
    "you know {person}", "i am sure that {person} {done} it", "i think you like {things}",
    "i think we should talk about {stuff}", "that was a good {noun}", "you are a {noun}",
    "this {noun} is not mine", "it is {colour} outside", "it was {person}",
    "how many {noun} {things} make a {noun}", "what is {number} degrees in {place}",
    "what is half of {number}", "add {number} and {number}", "multiply {number} by {number}",
    "what percentage of {things} are {colour}", "how many {things} are there in {number} {things}",
    "is {number} bigger than {number}", "i know {number} {things}",
)  # fmt: skip
WHOLE = (
    "what is the weather like today", "who won the game", "write me a poem", "tell me a joke",
    "what time is it", "translate this into french", "how old are you", "what is two plus two",
    "sing a song", "where do you live", "recommend a good restaurant", "what should i eat",
    "book a flight to london", "who wrote hamlet", "i am bored", "what is the capital of france",
    "are you human", "do you love me", "what is the meaning of life", "why", "are you happy",
    "do you sleep", "can you keep a secret", "what is your favourite colour", "who made you", "i am hungry",
    "i feel sad", "i do not understand", "that is wrong", "you are stupid", "what did i say",
    "what does the recording say", "who is speaking", "what did you hear", "tell me more", "go on",
    "and then", "say something", "ok", "yes", "no", "maybe", "never mind", "forget it", "why not", "really",
    "lol", "test", "solve my homework", "write a program", "write a function that adds two numbers",
    "fix my code", "debug this", "why does my program crash", "how do i install python",
    "which version of python is the best", "who made python", "is python better than java",
    "how do i become a programmer", "what is the best editor", "open my email", "how fast is python",
    "where can i download python", "when was python released", "convert this to java", "set an alarm",
    "what is my age", "what was my question", "who am i", "what is your age", "do you ever eat",
    "do you ever get tired", "do you ever lie", "did you ever travel", "have you ever been in love",
    "i think you are mistaken", "i think that is not right", "you are wrong", "you must be wrong about it",
    "i do not believe you", "i disagree with you", "that cannot be true", "you said something else",
    "what do you think of me", "do you know my name", "where is my phone", "what did you dream",
    "remind me tomorrow", "what is on television", "how are the children", "good luck", "what now",
)  # fmt: skip
# Beside a picture of a digit: what its labels do not answer.
ABOUT_A_PICTURE = (
    "what colour is it", "what colour is the {i}", "who drew this", "who wrote it", "who made this {i}",
    "is it even", "is it odd", "is it a prime number", "is it bigger than five", "how big is the {i}",
    "when was this {i} taken", "where was this {i} taken", "who is in the {i}", "is it nicely written",
    "which pen was used", "is it beautiful", "make it brighter", "rotate the {i}", "crop the {i}",
    "add two to it", "double it", "what is it plus one", "translate it", "what is half of it",
    "which font is this", "how old is this {i}", "delete the {i}", "print it",
    "how many pixels does the {i} have", "is the {i} sharp", "save the {i}", "send it to my friend",
    "is it roman",
)  # fmt: skip
COLOURS = (
    "red",
    "blue",
    "green",
    "white",
    "black",
    "yellow",
    "cold",
    "hot",
    "round",
    "empty",
    "too small",
    "dirty",
)
LANGUAGES = (
    "french",
    "german",
    "spanish",
    "italian",
    "latin",
    "japanese",
    "russian",
    "chinese",
    "polish",
    "dutch",
)
SYLLABLES = (
    "ba be bo ca co da de do fa fi ga go ha hi ka ki la lo ma mi na no pa po ra ri sa so ta to va vo wa zu"
)

# Never trained on: what the gate's figure of refusals is measured with.
HELD_OUT = tuple(Path(__file__).with_name("off_topic_held_out.txt").read_text(encoding="utf-8").splitlines())

KNOWN = frozenset(name.lower() for topic in load_topics() for name in topic["names"])
# What the templates of topics make of a name that only looks unknown.
_TOPIC_NAMES = sorted(KNOWN)
_TOPIC_WORDS = frozenset(word for name in KNOWN for word in re.findall(r"[a-z_]+", name))


def _python_names() -> tuple[list[str], list[str]]:
    """Names of Python that are no topic, to train on and held out: every fifth."""
    names = {
        *dir(builtins),
        *keyword.kwlist,
        *keyword.softkwlist,
        *sys.stdlib_module_names,
        *dir(str),
        *dir(list),
    }
    unknown = sorted(
        name for name in names if not name.startswith("_") and name.lower() not in KNOWN | _TOPIC_WORDS
    )
    return [name for i, name in enumerate(unknown) if i % 5], unknown[::5]


PYTHON_NAMES, HELD_OUT_NAMES = _python_names()
_WORDS = sorted(
    {word for passage in load_passages() for word in re.findall(r"\b[a-z]{3,}\b", passage)} - _TOPIC_WORDS
)


def word(random_: random.Random) -> str:
    """A made-up word, mostly, or one of the passages that is part of no topic's name."""
    if random_.random() < 0.4:
        return str(random_.choice(_WORDS))
    if random_.random() < 0.3:
        return "".join(random_.choices("abcdefghijklmnopqrstuvwxyz", k=random_.randint(2, 9)))
    made = "".join(random_.choices(SYLLABLES.split(), k=random_.randint(1, 4)))
    return made + random_.choice(("", "n", "r", "st", "ing", "er", "s"))


def _some_noun(random_: random.Random) -> str:
    return random_.choice(THINGS) if random_.random() < 0.6 else word(random_)


def _with_article(noun: str) -> str:
    return ("an " if noun[0] in "aeiou" else "a ") + noun


def _some_stuff(random_: random.Random) -> str:
    return random_.choice(SUBSTANCES) if random_.random() < 0.6 else word(random_)


def _some_number(random_: random.Random) -> str:
    words = ("two", "three", "four", "seven", "ten", "twelve", "twenty", "fifty", "a hundred")
    return str(random_.randint(2, 999)) if random_.random() < 0.5 else random_.choice(words)


def question(random_: random.Random) -> str:
    """A question that is none of the topics' nor about a picture, in lower case without punctuation."""
    if random_.random() < 0.12:
        return random_.choice(WHOLE)
    draw = random_.random()
    text = random_.choice(SAME_WORDS if draw < 0.15 else OPINIONS if draw < 0.3 else TEMPLATES)
    holes: dict[str, Callable[[], str]] = {
        "{topic}": lambda: random_.choice(_TOPIC_NAMES),
        "{attribute}": lambda: random_.choice(ATTRIBUTES) if random_.random() < 0.8 else word(random_),
        "{place}": lambda: random_.choice(PLACES) if random_.random() < 0.85 else word(random_),
        "{person}": lambda: random_.choice(PEOPLE) if random_.random() < 0.8 else word(random_),
        "{things}": lambda: _some_noun(random_) + "s",
        "{thing}": lambda: _with_article(_some_noun(random_)),
        "{noun}": lambda: _some_noun(random_),
        "{stuff}": lambda: _some_stuff(random_),
        "{done}": lambda: random_.choice(DONE),
        "{act}": lambda: random_.choice(ACTS),
        "{number}": lambda: _some_number(random_),
        "{language}": lambda: random_.choice(LANGUAGES),
        "{colour}": lambda: random_.choice(COLOURS),
        "{year}": lambda: str(random_.randint(1066, 2030)),
    }
    for hole, maker in holes.items():
        while hole in text:
            text = text.replace(hole, maker(), 1)
    # A thing of the world may share its name with a topic: "a list", "the range".
    return text if not asks_for_a_topic(text) else random_.choice(WHOLE)


def asks_for_a_topic(text: str) -> bool:
    """Whether a bare question's subject is a topic after all: "what is a list", "explain zip"."""
    subject = re.sub(
        r"^(what (is|are|does)|explain|describe|tell me about|how (does|do)|what about)\b", "", text
    )
    subject = re.sub(r"\b(work|do|so important)$", "", subject).strip()
    subject = re.sub(r"^(a|an|the)\b", "", subject).strip()
    return subject in KNOWN or subject.rstrip("s") in KNOWN
