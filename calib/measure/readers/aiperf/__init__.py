"""aiperf result folders of every version: runs, sweeps, trials, per-request records. Read first: `read`."""
