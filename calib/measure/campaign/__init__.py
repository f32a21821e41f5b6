"""A campaign: its campaign.toml, the folder it describes, and the topology of each run. Read first: `load`."""
