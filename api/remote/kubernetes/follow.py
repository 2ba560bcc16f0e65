"""The cluster's nodes as the controller follows them: listed once, then watched."""

from __future__ import annotations

import asyncio
import contextlib
import logging

from api.remote.kubernetes.client import Cluster
from api.remote.kubernetes.errors import WatchGone
from api.remote.kubernetes.objects import Node

log = logging.getLogger(__name__)


class Nodes:
    """The cluster's nodes: listed, then watched; listed again when the watch is too far behind."""

    def __init__(self, cluster: Cluster, news: asyncio.Event) -> None:
        self._cluster = cluster
        self._news = news
        self._version = ""
        self.by_name: dict[str, Node] = {}
        self.is_listed = False

    async def step(self) -> None:
        if not self._version:
            await self.list()
        try:
            async with contextlib.aclosing(self._cluster.watch_nodes(self._version)) as events:
                async for kind, node in events:
                    self._take(kind, node)
        except WatchGone as error:
            log.info("nodes are listed again: %s", error)
            self._version = ""

    async def list(self) -> None:
        self.by_name, self._version = await self._cluster.list_nodes()
        self.is_listed = True
        self._news.set()

    def _take(self, kind: str, node: Node) -> None:
        """Apply an event. A bookmark only carries the version."""
        self._version = node.metadata.resource_version or self._version
        if kind == "DELETED":
            self.by_name.pop(node.name, None)
        elif kind in {"ADDED", "MODIFIED"}:
            self.put(node)
        self._news.set()

    def put(self, node: Node) -> None:
        """Store a node; an event that is older than our own write is ignored."""
        known = self.by_name.get(node.name)
        if known is None or not node.is_older_than(known):
            self.by_name[node.name] = node

    def drop(self, name: str) -> None:
        self.by_name.pop(name, None)
