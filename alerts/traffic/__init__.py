"""Who talks to whom in a job, how much, in what rhythm and how evenly. Pure."""
