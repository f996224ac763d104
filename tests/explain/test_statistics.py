import asyncio
from types import SimpleNamespace

from trimodal.explain.statistics import Counters, Statistics, alone


def answer(**requests: int) -> SimpleNamespace:
    def counted(name: str, count: int) -> SimpleNamespace:
        times = {
            kind: SimpleNamespace(count=count, ns=count * ns)
            for kind, ns in {
                "success": 100,
                "queue": 1,
                "compute_input": 2,
                "compute_infer": 80,
                "compute_output": 3,
            }.items()
        }
        return SimpleNamespace(name=name, inference_stats=SimpleNamespace(**times))

    return SimpleNamespace(model_stats=[counted(*one) for one in requests.items()])


class Client:
    def __init__(self, *answers: SimpleNamespace) -> None:
        self.answers = list(answers)

    async def get_inference_statistics(self) -> SimpleNamespace:
        return self.answers.pop(0)


def test_what_one_request_added_though_it_is_counted_late() -> None:
    client = Client(answer(llm=4, vision=9), answer(llm=4, vision=9), answer(llm=5, vision=9, speech=2))

    async def use() -> dict[str, Counters]:
        statistics = Statistics(client)
        return await statistics.since(await statistics.read(), "llm")

    found = asyncio.run(use())
    assert found["llm"] == Counters(1, 1, 2, 80, 3, 100)
    assert found["speech"].requests == 2, "it had none before"
    assert "vision" not in found
    assert alone(found, ["llm"])
    assert not alone(found, ["llm", "speech"])
    assert not alone(found, ["vision"])
