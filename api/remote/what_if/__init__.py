"""`fabricscope what-if`: steps of running jobs on a fabric that is not there."""
