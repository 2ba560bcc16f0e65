"""Real programs of ours started for tests: service, agents, databases, browsers, terminals."""
