"""The only ways to the machine: files, programs, sockets, netlink, NVML. Sources use `Host`."""
