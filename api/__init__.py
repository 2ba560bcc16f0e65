"""The service: ingest, store, inventory, queries and HTTP."""

import os

# Arrow reads it when it is imported first, so here, before any module of ours does that. Its own
# allocator (mimalloc) keeps a heap for each thread: 80 MB after 20 minutes in which all that it
# held was freed. The C library's is bounded for all (`api.base.allocator`).
os.environ.setdefault("ARROW_DEFAULT_MEMORY_POOL", "system")
