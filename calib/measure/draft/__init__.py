"""A campaign.toml drafted from a folder of results: `entries` sees, `infer` decides, `text` writes."""
