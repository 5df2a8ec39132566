"""Who runs passes in this process, so that a pass which may kill it can be alone there. [RUN-WORK-SUSPECT]"""

from __future__ import annotations

import os
import threading
import weakref
from typing import Protocol


class Member(Protocol):
    """A worker's run, in whatever thread."""

    @property
    def is_quiet(self) -> bool:
        """Whether it neither holds a turn nor asks for one."""
        ...


class Company:
    """The runs of all workers of one process. Threads share it."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._members: weakref.WeakSet[Member] = weakref.WeakSet()
        self._wanted: weakref.ref[Member] | None = None
        self._process = os.getpid()

    def __repr__(self) -> str:
        return f"<Company of {len(self._members)}>"

    def join(self, member: Member) -> None:
        """Begin to be counted."""
        with self._lock:
            if self._process != os.getpid():  # a fork takes none of them along
                self._process, self._members, self._wanted = os.getpid(), weakref.WeakSet(), None
            self._members.add(member)

    def leave(self, member: Member) -> None:
        """End to be counted."""
        with self._lock:
            self._members.discard(member)
        self.give_up(member)

    def is_closed_to(self, member: Member) -> bool:
        """Say whether another member wants to be alone: nobody begins a pass then."""
        wanted = None if self._wanted is None else self._wanted()
        return wanted is not None and wanted is not member

    def has_others(self, member: Member) -> bool:
        """Say whether another member is counted."""
        with self._lock:
            return any(other is not member for other in list(self._members))

    def want(self, member: Member) -> bool:
        """Ask to be alone; refused while another member does."""
        with self._lock:
            if self.is_closed_to(member):
                return False
            self._wanted = weakref.ref(member)
            return True

    def give_up(self, member: Member) -> None:
        """Ask no more."""
        with self._lock:
            if self._wanted is not None and self._wanted() in (member, None):
                self._wanted = None

    def is_alone(self, member: Member) -> bool:
        """Say whether the member asked to be alone, and is."""
        with self._lock:
            asked = self._wanted is not None and self._wanted() is member
            return asked and all(other is member or other.is_quiet for other in list(self._members))


COMPANY = Company()
