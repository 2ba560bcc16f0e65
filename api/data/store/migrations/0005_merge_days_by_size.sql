-- A day that is over and small becomes one part, as before. A large one becomes parts of about this
-- size: one merge of a whole day of a thousand hosts would take hours, and the day's room twice.
ALTER TABLE samples {{on_cluster}} MODIFY SETTING
    min_age_to_force_merge_seconds = 0, min_age_to_force_merge_on_partition_only = 0,
    min_partition_age_to_force_merge_seconds = 600,
    max_bytes_to_merge_at_max_space_in_pool = 8589934592;
