"""What every part of the service uses: errors, limits, times, its own metrics."""
