"""What a judge that reads neither case nor line ends cannot tell apart."""

import pytest

from trimodal.judge.unseen import differ_unseen


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I grep -v a file?", "How do I grep -V a file?"),
        ("How many Mb are in a GB?", "How many MB are in a GB?"),
        ("What does asyncio.Queue do?", "What does asyncio.queue do?"),
        ("how does it work", "how does IT work"),
        ("Is 12 Mbps enough?", "Is 12 MBps enough?"),
        ("what is `Map` good for", "what is `map` good for"),
        ("what is fooBar_1", "what is foobar_1"),
        ("if x:\n  a()\nb()", "if x:\n  a()\n  b()"),
    ],
)
def test_it_counts(one, other):
    assert differ_unseen(one, other)
    assert differ_unseen(other, one)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("How do I reset my password?", "HOW DO I RESET MY PASSWORD?"),
        ("How do I reset my password?", "how do i reset my password"),
        ("Is Paris big?", "is paris big"),
        ("who's there", "Who's there"),
        ("It broke. Do I pay?", "it broke. do i pay"),
        ("when do i get MY money", "when do I get my money"),
        ("Is 12 Mbps enough in Rome?", "is 12 mbps enough in rome"),
        ("How Do I Reset My Phone", "how do I reset my phone"),
        ("what  is this", "what is this"),
        ("", "a"),
        ("if x:\n  a()", "if x:\n  a()"),
    ],
)
def test_it_does_not(one, other):
    assert not differ_unseen(one, other)
    assert not differ_unseen(other, one)
