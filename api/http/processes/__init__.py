"""A service of several processes: which there are, who keeps them, what each does."""
