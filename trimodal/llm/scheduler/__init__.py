"""Order, admission and pace in front of an engine: deadlines, priorities, and predicted TTFT."""

from trimodal.llm.scheduler.scheduler import Scheduler
from trimodal.llm.scheduler.ticket import Ticket

__all__ = ["Scheduler", "Ticket"]
