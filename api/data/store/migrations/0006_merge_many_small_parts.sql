-- Rows come in small inserts, a second apart, and small parts are merged whenever two of them are ten
-- seconds old: each row of `steps` was written fifty times in its first two minutes. Waiting for more
-- parts writes each row a few times.
ALTER TABLE samples {{on_cluster}} MODIFY SETTING
    min_parts_to_merge_at_once = 16;
ALTER TABLE series {{on_cluster}} MODIFY SETTING
    min_parts_to_merge_at_once = 16, merge_selector_base = 16;
ALTER TABLE collectives {{on_cluster}} MODIFY SETTING
    min_parts_to_merge_at_once = 16, merge_selector_base = 16;
ALTER TABLE steps {{on_cluster}} MODIFY SETTING
    min_parts_to_merge_at_once = 16, merge_selector_base = 16;
