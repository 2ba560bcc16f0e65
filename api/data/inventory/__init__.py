"""The inventory: which hosts, devices and ports exist, since when, and when they were last seen.

Relational, on SQLite or PostgreSQL. It fills by itself: every series that arrives says what it was
measured on (`sightings`), the `feed` collects that beside the ingest path, and the `repository`
keeps it. Nothing here can delay or fail an ingest request.
"""
