-- A day that nobody writes to any more becomes one part: a question about it then reads each
-- series in one place, and repeats are gone. Today's part grows by ordinary merges; to force it
-- too would write the whole day again and again.
ALTER TABLE samples {{on_cluster}} MODIFY SETTING
    min_age_to_force_merge_seconds = 600, min_age_to_force_merge_on_partition_only = 1;
