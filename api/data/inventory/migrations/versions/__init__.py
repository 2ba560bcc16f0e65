"""The steps, ordered by the number in front. A step that was released never changes."""
