"""The agent that runs on every host, and the poller that walks the switches."""
