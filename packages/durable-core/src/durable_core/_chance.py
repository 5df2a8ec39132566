"""Another time and other chances for a body that looks at them behind its run's back."""

from __future__ import annotations

import datetime as real
import functools
import random
import time
from collections.abc import Callable, Generator, MutableMapping
from contextlib import contextmanager
from types import FunctionType, MethodType, ModuleType

WORLDS = 2
_SEEDS = (8916, 12024)  # whose first numbers are small, and large
_SHIFTS = (real.timedelta(days=400, hours=8), real.timedelta(days=801, hours=16))


@contextmanager
def another_world(body: Callable[..., object], number: int) -> Generator[None]:
    """Shift `time.time` and what the body's module knows of datetime, and seed `random`; then put everything back."""
    shift, chances = _SHIFTS[number], random.getstate()
    kept = time.time, time.time_ns  # noqa: TID251 - what is faked
    clocks: dict[object, object] = {
        kept[0]: lambda: kept[0]() + shift.total_seconds(),
        kept[1]: lambda: kept[1]() + shift // real.timedelta(microseconds=1) * 1_000,
        real.datetime: _datetime(shift),
        real.date: _date(shift),
    }
    names = _names(body)
    replaced = {name: value for name, value in names.items() if _is_clock(value, clocks)}
    try:
        random.seed(_SEEDS[number])
        _set_clocks(clocks[kept[0]], clocks[kept[1]])
        names.update({name: _clock(value, clocks) for name, value in replaced.items()})
        yield
    finally:
        _set_clocks(*kept)
        names.update(replaced)
        random.setstate(chances)


def _set_clocks(seconds: object, nanoseconds: object) -> None:
    setattr(time, "time", seconds)  # noqa: B010 - a module is not typed to be changed
    setattr(time, "time_ns", nanoseconds)  # noqa: B010


def _names(body: Callable[..., object]) -> MutableMapping[str, object]:
    """Give the variables of the module that the body is from."""
    function: object = body
    while not isinstance(function, FunctionType):
        if isinstance(function, functools.partial):
            function = function.func
        elif isinstance(function, MethodType):
            function = function.__func__
        elif isinstance(called := getattr(type(function), "__call__", None), FunctionType):  # noqa: B004
            function = called
        else:
            return {}
    return function.__globals__


def _is_clock(value: object, clocks: dict[object, object]) -> bool:
    return value is real or any(value is clock for clock in clocks)


def _clock(value: object, clocks: dict[object, object]) -> object:
    if value is not real:
        return next(other for clock, other in clocks.items() if clock is value)
    module = ModuleType("datetime")
    vars(module).update(vars(real), datetime=clocks[real.datetime], date=clocks[real.date])
    return module


class _AsReal(type):
    """What is an instance of the real class is one of this."""

    def __instancecheck__(cls, instance: object) -> bool:
        return isinstance(instance, cls.__mro__[1])


def _datetime(shift: real.timedelta) -> type:
    def now(tz: real.tzinfo | None = None) -> real.datetime:
        return real.datetime.now(tz) + shift  # noqa: TID251 - this is what is faked

    def utcnow() -> real.datetime:
        return now(real.UTC).replace(tzinfo=None)

    return _AsReal(
        "datetime", (real.datetime,), {call.__name__: staticmethod(call) for call in (now, utcnow)} | {"today": staticmethod(now)}
    )


def _date(shift: real.timedelta) -> type:
    def today() -> real.date:
        return real.date.today() + shift

    return _AsReal("date", (real.date,), {"today": staticmethod(today)})
