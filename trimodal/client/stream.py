"""The answer of the llm model as it is made: a delta a response."""

from __future__ import annotations

from trimodal.client.answering import Answering
from trimodal.client.transport import Tensors
from trimodal.client.values import Delta


class AnswerStream(Answering[Delta]):
    """The deltas of one answer, to be iterated once. The request is sent when the first one is asked for.

        async with client.stream("…") as stream:
            async for delta in stream:
                print(delta.text, end="")
        print(stream.usage, stream.timing.ttft)

    Leaving early (break, an exception, a cancelled task, `cancel`, the end of the `async with`)
    ends the request on the server at once.
    """

    def _item(self, outputs: Tensors) -> Delta | None:
        return self._delta(outputs)
