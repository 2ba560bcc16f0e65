"""What sources share: sysfs, followed files, processes, configuration, InfiniBand tools."""
