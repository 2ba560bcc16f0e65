"""From stored records to windows: join over ranks, align clocks, split waiting from transfer."""
