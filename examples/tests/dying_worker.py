"""A worker that is killed, with SIGKILL, just after a certain key was recorded.

python -m examples.tests.dying_worker STORE PORT KEY
"""

import asyncio
import os
import signal
import sys

from durable_core.observer import Event, StepRecorded
from examples.payments.bank import Bank
from examples.payments.worker import serve_at


def killed(event: Event) -> None:
    """End the process as a power cut would."""
    if isinstance(event, StepRecorded) and event.key == sys.argv[3]:
        os.kill(os.getpid(), signal.SIGKILL)


asyncio.run(serve_at(sys.argv[1], Bank(int(sys.argv[2])), killed))
