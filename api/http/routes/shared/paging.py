"""Pages of a list: the parameters of a request and the shape of its answer."""

from __future__ import annotations

from typing import Annotated, Generic, TypeVar

from fastapi import Query
from pydantic import BaseModel, Field

from api.base.limits import PAGE_MAX

Limit = Annotated[int, Query(ge=1, le=PAGE_MAX, description="Entries of one page.")]
After = Annotated[str | None, Query(description="`next` of the page before.")]
Item = TypeVar("Item")


class Page(BaseModel, Generic[Item]):
    """One page of a list. ``next`` is null on the last one."""

    items: list[Item]
    next: str | None = Field(description="Pass it as `after` to get the next page.")
