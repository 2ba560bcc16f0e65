"""Training jobs: how ranks are laid out, what a step does, and when each rank does it."""
