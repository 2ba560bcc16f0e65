"""A store's memory of the last minutes that holds nothing: every read is the store's."""

from typing import Never

from api.data.store.recent import Recent


def never(*_: object) -> Never:
    raise AssertionError("what is not held is not loaded")


def nothing_held() -> Recent:
    """As beside a store that others write to."""
    return Recent(never, never, is_complete=False, now_ms=lambda: 0)
