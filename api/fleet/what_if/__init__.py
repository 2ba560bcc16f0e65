"""What steps of running jobs would take if a cable or a rank were elsewhere or another."""
