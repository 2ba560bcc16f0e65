"""The inventory: which hosts, devices and ports exist, since when, and when they were last seen.

Relational, on SQLite or PostgreSQL. It fills by itself: the labels of every series name the thing
it was measured on (`sightings`), the `feed` collects that beside the ingest path, and the
`repository` stores it. Nothing here can delay or fail an ingest request.
"""
