"""Decides which request starts when, and which is refused: priorities, deadlines, predicted TTFT."""

from trimodal.llm.scheduler.scheduler import Scheduler
from trimodal.llm.scheduler.ticket import Ticket

__all__ = ["Scheduler", "Ticket"]
