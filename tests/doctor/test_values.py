import pytest

from trimodal.doctor.values import Check, Group, Part
from trimodal.errors import ServerError


@pytest.mark.parametrize(
    ("sentence", "found", "remedy"),
    [
        (
            "/dev/shm has 3 MiB free of 64 MiB, but the Python models (instances: 9) need 36 MiB: enlarge it "
            "(docker run --shm-size=1g)",
            "/dev/shm has 3 MiB free of 64 MiB, but the Python models (instances: 9) need 36 MiB",
            "enlarge it (docker run --shm-size=1g)",
        ),
        (
            "there is no built engine llm/1/a: build one with: python build/llm.py",
            "there is no built engine llm/1/a",
            "build one with: python build/llm.py",
        ),
        ("llm/config.pbtxt: unknown parameter 'x'", "llm/config.pbtxt: unknown parameter 'x'", ""),
    ],
)
def test_what_to_do_stands_behind_the_colon(sentence, found, remedy):
    assert Group("g").refused("name", ServerError(sentence)) == Check(
        "error", Part("g", "name"), found, remedy
    )
