"""AI agents that you can stop at any moment. Every stop returns a receipt: the work that ended, the work that did not, and
the evidence.
"""

from ._agent import Agent, Answer, Run
from ._errors import RunFailed, Stopped, ToolStopped, receipt_of
from ._events import Event, Events
from ._exec import CommandResult, exec
from ._job import StopInProgress
from ._model import Model, ModelRequest, Reply
from ._receipt import Cause, Evidence, Item, Receipt, Usage
from ._session import Message, Session, WaitResult
from ._tools import Tool, ToolCx, tool

__all__ = [
    "Agent",
    "Answer",
    "Cause",
    "CommandResult",
    "Event",
    "Events",
    "Evidence",
    "Item",
    "Message",
    "Model",
    "ModelRequest",
    "Receipt",
    "Reply",
    "Run",
    "RunFailed",
    "Session",
    "StopInProgress",
    "Stopped",
    "Tool",
    "ToolCx",
    "ToolStopped",
    "Usage",
    "WaitResult",
    "exec",
    "receipt_of",
    "tool",
]
