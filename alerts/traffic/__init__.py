"""Traffic of a job: which rank sends to which, how much, in what rhythm, how evenly. Pure."""
