"""Names every scenario."""

from __future__ import annotations

from tests.schedules.play import Scenario
from tests.schedules.scenarios import assistant, llm, lookups, speech, stores

SCENARIOS: tuple[type[Scenario], ...] = (
    llm.Scheduling,
    llm.Caching,
    llm.Auditing,
    llm.Sharing,
    llm.Cancelling,
    llm.Sending,
    llm.Closing,
    lookups.Lookups,
    stores.Indexing,
    stores.Counting,
    speech.Speech,
    assistant.Assistant,
)
