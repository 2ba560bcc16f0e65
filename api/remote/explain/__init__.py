"""What an incident is, in a terminal."""
