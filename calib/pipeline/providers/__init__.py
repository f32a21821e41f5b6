"""Where per-op latencies come from, beside a file: the kernel tables of aiconfigurator-core, and the roofline."""
