"""The words that tasks are described with."""

from typing import Literal

TaskStatus = Literal["pending", "in_progress", "completed", "cancelled"]
TaskScope = Literal["user", "agent", "collaborative"]
Priority = Literal["high", "normal", "low"]
